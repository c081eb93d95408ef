"""Repositories of their own for tests that need git: the project as it is now, and copies."""

from __future__ import annotations

import subprocess
from pathlib import Path

from small_pipeline import copy_project

AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def git(root: Path, *arguments: str) -> str:
    """What a git command prints in ``root``."""
    command = ["git", *AUTHOR, *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path) -> Path:
    """Put all that is in ``root`` and not ignored into its repository, made if there is none."""
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "as it is now")
    return root


def checkout(root: Path) -> Path:
    """A repository at ``root`` with the project's files as they are now, committed or not."""
    copy_project(root)
    return commit(root)
