"""Where numbers come from: commit, changed parameters, day, machine, models.

Knows: git, the machine, the digests of models. Does not know: what was measured, pages.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flows.profiles import PROFILES, read_profile
from flows.stages import PARAMS_FILE, leaves
from selverify.errors import ArtifactError
from selverify.models.sources import sources_of
from selverify.params import Params, parse_yaml
from selverify.storage import DIGESTS, write_plain_json

REPORT_NAME = "report.md"
WRITTEN = ("README.md", "docs", "dvc.lock", "results", PARAMS_FILE.as_posix())
"""What a run and `python -m flows readme` write: changes there say nothing about the code.

Changed parameters are listed one by one.
"""
NO_COMMIT = "none"
"""Without git."""
CHANGED = "+changes"
"""After a commit whose work tree differs from it."""
ORIGINS = Path(".cache/origins")
"""Where origins are kept, by report: what a stage writes must not depend on day and machine."""
PROFILE = "profile "
"""Before the name of one, among changed parameters."""
DIGITS = 12
"""Of a digest that people compare."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where numbers come from: commit, day of the report (UTC), processor, its cores, Python.

    ``changes`` are the parameters that differ from the commit's, as ``name=value``.
    """

    commit: str
    changes: tuple[str, ...]
    day: str
    processor: str
    cores: int
    python: str

    @property
    def sentence(self) -> str:
        """One line of Markdown."""
        changed = " ".join(f"`{change}`" for change in self.changes)
        where = f"`{self.commit}`" + (f" with {changed}" if changed else "")
        return (
            f"Measured at commit {where}, {self.day}, on {self.processor} "
            f"({self.cores} cores), Python {self.python}."
        )

    @property
    def clean(self) -> bool:
        """Whether the code was that of a commit."""
        return self.commit != NO_COMMIT and not self.commit.endswith(CHANGED)

    @property
    def command(self) -> str:
        """What computes the same from the commit, for a shell."""
        profiles = [one.removeprefix(PROFILE) for one in self.changes if one.startswith(PROFILE)]
        others = [shlex.quote(one) for one in self.changes if not one.startswith(PROFILE)]
        made = [f"make run PROFILE={name}" for name in profiles]
        if others:
            made.append(" -S ".join(("dvc exp run", *others)))
        return "; ".join(made) or "make run"


def present_origin(root: Path) -> Origin:
    """Of what the work tree at ``root`` computes now."""
    return Origin(
        commit=short_commit(root),
        changes=changed_parameters(root),
        day=datetime.now(UTC).date().isoformat(),
        processor=_processor(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
    )


def record_origin(root: Path, report: Path, origin: Origin) -> None:
    """Keep the ``origin`` of a report that was just computed."""
    path = _record(root, report)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_plain_json(path, asdict(origin))


def find_origin(root: Path, report: Path) -> Origin | None:
    """What :func:`record_origin` kept of this report; None where nothing is known of it.

    Raises:
        ArtifactError: the report is missing.
    """
    path = _record(root, report)
    try:
        return TypeAdapter(Origin).validate_json(path.read_bytes())
    except (OSError, ValidationError):  # computed elsewhere, or before, or damaged
        return None


def _record(root: Path, report: Path) -> Path:
    """Where a report's origin is kept, by the report's digest."""
    digest = hashlib.sha256(reported(report, REPORT_NAME).read_bytes()).hexdigest()[:DIGITS]
    return root / ORIGINS / f"{digest}.json"


def reported(report: Path, name: str) -> Path:
    """A file of the report.

    Raises:
        ArtifactError: it is missing.
    """
    path = report / name
    if not path.is_file():
        raise ArtifactError(f"{path}: missing; stage 'report' writes it (make run)")
    return path


def changed_parameters(root: Path) -> tuple[str, ...]:
    """Parameters that differ from the commit's, as profiles and as ``name=value``.

    A profile is named where that leaves less to say, with what is otherwise than in it. Where a
    copy of a known benchmark lies is left out.
    """
    text = git(root, "show", f"HEAD:./{PARAMS_FILE.as_posix()}")
    path = root / PARAMS_FILE
    if text is None or not path.is_file():
        return ()
    before, now = (leaves("", parse_yaml(one)) for one in (text, path.read_text(encoding="utf-8")))
    profiles = {
        path.stem: read_profile(root / PROFILES, path.stem)
        for path in sorted((root / PROFILES).glob("*.yaml"))
    }
    changes, names = [], _differing(before, now)
    while profiles:
        # The one after which the least is left to say.
        left = {name: _differing({**before, **own}, now) for name, own in profiles.items()}
        best = min(left, key=lambda name: len(left[name]))
        if len(left[best]) >= len(names):
            break
        changes.append(f"{PROFILE}{best}")
        names, before = left[best], {**before, **profiles.pop(best)}
    told = (name for name in names if not _is_place(name, now))
    return (*changes, *(f"{name}={_shown(name, now.get(name))}" for name in told))


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]


def _is_place(name: str, values: Mapping[str, Any]) -> bool:
    """Whether a parameter says where a copy of a known benchmark lies, and not what is read."""
    section, _, last = name.rpartition(".")
    return last == "path" and values.get(f"{section}.source", "file") != "file"


def code_changed(root: Path) -> bool | None:
    """Whether code differs from the commit, new files too; None without git.

    What a run writes and parameters, which are told one by one, do not count.
    """
    others = (f":(exclude){path}" for path in WRITTEN)
    found = git(root, "status", "--porcelain", "--", ".", *others)
    return None if found is None else bool(found)


def model_digests(params: Params, root: Path) -> Iterator[tuple[str, str]]:
    """The folders of the models that the parameters name, each with what tells it from others."""
    for backbone in params.backbones:
        yield from _digest("generator", root / "models" / f"{params.domain}-{backbone}", root)
        for strength in params.strengths:
            for part in ("verifier", "policy"):
                yield from _digest(part, root / "models" / f"{backbone}-{strength}" / part, root)


def _digest(part: str, folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Of all files of a model, by their digests; of a model from elsewhere what it is called."""
    name = folder.relative_to(root).as_posix()
    if (folder / DIGESTS).is_file():
        yield name, hashlib.sha256((folder / DIGESTS).read_bytes()).hexdigest()[:DIGITS]
    elif source := sources_of({part: folder}).get(part):
        told = source.model_dump()
        called = " ".join(str(told[key]) for key in ("model", "revision") if told.get(key))
        yield name, called or str(told["kind"])


def short_commit(root: Path) -> str:
    """Git's commit, marked where its code was changed; "none" without git."""
    commit = git(root, "rev-parse", "--short", "HEAD")
    return NO_COMMIT if commit is None else f"{commit}{CHANGED}" if code_changed(root) else commit


def _shown(name: str, value: object) -> object:
    """The value of a parameter; of a file of this machine its name alone."""
    return Path(value).name if isinstance(value, str) and name.endswith(".path") else value


def git(root: Path, *arguments: str) -> str | None:
    """What git prints in ``root``; None without git, or where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _processor() -> str:
    """The processor's name where the system gives it, else its architecture."""
    table = Path("/proc/cpuinfo")
    text = table.read_text(encoding="utf-8", errors="replace") if table.is_file() else ""
    found = re.search(r"^model name[^\S\n]*:[^\S\n]*(\S.*)$", text, flags=re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
