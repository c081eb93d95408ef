"""Coverage-guided fuzzing: ``python tests/fuzz/run.py --seconds 600 --targets claims countdown``.

Knows: atheris (libFuzzer), which the project itself does not need. Does not know: any parser: the
targets are imported in functions, where atheris instruments them.

One target after the other, each in a process of its own; they share the time equally. What breaks a
promise, or takes longer than 50 ms, is tried again without instrumentation, and what stands is kept
below ``tests/fuzz/corpus``. A line of JSON a target tells inputs, seconds, the slowest and finds.
With ``--work`` a later run goes on from what this one learned.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from fuzz_targets import Target

LIMIT = 0.05
"""Seconds that a gate or a parser may take for a piece."""
GUIDING = (
    "selverify.domains.answers",
    "selverify.models.generators.served",
    "selverify.domains",
    "selverify.search.gates",
    "selverify.data.equivalence",
    "selverify.data.grading",
    "selverify.data.quantities",
    "selverify.models.verifiers.judge",
)
"""Where new branches are looked for."""
LONGEST_INPUT = 96
STATED_SECONDS = 5.0
FIGURES = "figures.json"
SUFFIX = ".input"


class Tally:
    """Counts the inputs of a target, and puts aside those to be tried again."""

    def __init__(self, target: Target, folder: Path) -> None:
        from fuzz_targets import slowest_piece

        self._slowest_piece = slowest_piece
        self._target = target
        self._folder = folder
        self._inputs, self._slowest = 0, 0.0
        self._began = self._stated = time.monotonic()
        self._faults: set[str] = set()

    def __call__(self, data: bytes) -> None:
        """Try one input; never raises, so that the fuzzer goes on."""
        self._inputs += 1
        try:
            seconds = self._slowest_piece(self._target, data)
        except Exception as error:
            self._put_aside(data, _place(error))
        else:
            if seconds > max(self._slowest, LIMIT / 10):
                self._slowest = seconds
                (self._folder / f"slow-{self._inputs}{SUFFIX}").write_bytes(data)
        if time.monotonic() - self._stated > STATED_SECONDS:
            self._state()

    def _state(self) -> None:
        self._stated = time.monotonic()
        told = {
            "inputs": self._inputs,
            "seconds": round(self._stated - self._began, 1),
            "processor_seconds": round(time.process_time(), 1),
        }
        (self._folder / FIGURES).write_text(json.dumps(told))

    def _put_aside(self, data: bytes, fault: str) -> None:
        if fault not in self._faults:
            self._faults.add(fault)
            (self._folder / f"{fault}{SUFFIX}").write_bytes(data)


def _place(error: BaseException) -> str:
    """What was raised and where, so that a fault is put aside once."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_name}-{trace.tb_lineno}"
    return f"{type(error).__name__}-{place}"


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Run libFuzzer on a target in this process, and end the process."""
    import atheris

    with atheris.instrument_imports(include=list(GUIDING)):
        from fuzz_targets import TARGETS
    target = TARGETS[name]
    learned = folder / "learned"
    learned.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-artifact_prefix={folder}/stopped-",
        "-timeout=120",
        "-rss_limit_mb=4096",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(learned)], Tally(target, folder))
    atheris.Fuzz()


def confirmed(name: str, folder: Path) -> dict[str, Any]:
    """Try again what was put aside, keep what stands, and say what there was."""
    from fuzz_targets import TARGETS, best_of_three

    target, slowest, finds = TARGETS[name], (0.0, b""), []
    for path in sorted((*folder.glob(f"*{SUFFIX}"), *folder.glob("stopped-*"))):
        data = path.read_bytes()
        try:
            seconds = best_of_three(target, data)
        except Exception as error:
            finds.append(f"{_kept(name, data)}: {type(error).__name__}: {error}"[:200])
            continue
        slowest = max(slowest, (seconds, data))
        if seconds > LIMIT:
            finds.append(f"{_kept(name, data)}: {seconds * 1000:.0f} ms")
    return {"slowest_ms": round(slowest[0] * 1000, 1), "slowest": slowest[1].hex(), "finds": finds}


def _kept(name: str, data: bytes) -> str:
    from fuzz_targets import CORPUS

    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path.name


def run(name: str, seconds: int, work: Path) -> dict[str, Any]:
    """Fuzz one target in a process of its own; its figures."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob(f"*{SUFFIX}"), folder / FIGURES):
        old.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--only", name, "--seconds", str(seconds)]
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [*command, "--work", str(folder)], check=False, stdout=log, stderr=log
        )
    figures = folder / FIGURES
    told = json.loads(figures.read_text()) if figures.is_file() else {}
    return {"target": name, "status": done.returncode, **told, **confirmed(name, folder)}


def main() -> None:
    """Read the options, fuzz, print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, required=True, help="for all targets together")
    options.add_argument("--targets", nargs="+")
    options.add_argument("--work", type=Path, help="keeps what was learned")
    options.add_argument("--only", help=argparse.SUPPRESS)
    told = options.parse_args()
    if told.only is not None:
        fuzz(told.only, told.seconds, told.work)
        return
    from fuzz_targets import TARGETS

    names = told.targets or [*TARGETS]
    if unknown := {*names} - TARGETS.keys():
        options.error(f"--targets: given {min(unknown)}, expected among {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as folder:
        work = told.work or Path(folder)
        for name in names:
            found = run(name, max(1, told.seconds // len(names)), work)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
