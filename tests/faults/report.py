"""``python tests/faults/report.py``: ``docs/reliability.md`` from the figures that tests recorded.

A session of tests that measured one of the long ones writes the page by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import figures
from figures import ROOT, Figure

PAGE = ROOT / "docs" / "reliability.md"
HEAD = """# Reliability

Tests measure every row. `python tests/faults/report.py` writes this page from their last records;
a whole `make soak` runs the long ones and writes it. The promises, each with its tests, are in
[promises under faults](what-survives-what.md).

"Undisturbed" is a run of the same copy of the project without a fault. Bytes are compared by
digest, of every output of the stages that ran. Seconds are those of the test without its
undisturbed run.
"""


def render(measured: Iterable[Figure]) -> str:
    """The page."""
    rows = sorted(measured, key=lambda one: (one.test.partition("[")[0], one.fault, one.test))
    origins = sorted({(one.commit, one.machine) for one in rows})
    numbered = {origin: number for number, origin in enumerate(origins, start=1)}
    lines = [HEAD, "Measured on:", ""]
    lines += [f"{number}. commit {one[0]}; {one[1]}" for one, number in numbered.items()]
    lines += ["", "| Fault | What was done | Moments | What held | Seconds | On | Test |"]
    lines += ["| --- | --- | ---: | --- | ---: | ---: | --- |"]
    for one in rows:
        test = _test_of(one)
        cells = (one.fault, one.done, one.moments, one.held, f"{one.seconds:.0f}")
        told = [str(cell).replace("|", "/") for cell in cells]
        lines.append(f"| {' | '.join(told)} | {numbered[one.commit, one.machine]} | {test} |")
    kills = [one for one in rows if "::test_a_killed_pipeline" in one.test]
    if kills:
        moments = sum(one.moments for one in kills)
        lines += ["", f"Kills of the whole pipeline: {moments}, of {len(kills)} stages' work."]
    return "\n".join(lines) + "\n"


def is_whole() -> bool:
    """Whether there are as many figures of every test as the page has rows of it."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    shown = Counter(line.rstrip(" |").rpartition("| ")[2] for line in rows[2:])
    return shown <= Counter(map(_test_of, figures.load().values()))


def _test_of(figure: Figure) -> str:
    return figure.test.partition("[")[0].rpartition("::")[2]


def write() -> None:
    """Write the page."""
    PAGE.write_text(render(figures.load().values()), encoding="utf-8")


if __name__ == "__main__":
    write()
