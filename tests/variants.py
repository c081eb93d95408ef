"""``make variants``: the tables that docs/results-paper.md shows beside the paper's scale.

After ``make run PROFILE=paper``, in its folder: verifiers that stop early, each part of the full
method left out, and the large grid, with the problems and seeds of that run and its first backbone.
Knows: which parameters differ, which cells of a report a table shows. Does not know: how a number
was measured. The parameters are put back at the end; ``make run`` then brings back the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.launcher import run
from flows.origin import PROFILE, REPORT_NAME, changed_parameters, find_origin, reported
from flows.profiles import Settings, params_with, profile_settings
from flows.readme import MAIN_SECTION, replaced, section
from flows.stages import PARAMS_FILE
from selverify.errors import ArtifactError, ParamsError, SelverifyError
from selverify.experiment.equal_cost import HULL
from selverify.experiment.methods import PARTS
from selverify.report.names import FULL_METHOD, method_name
from selverify.storage import atomic_path

PAGE = Path("docs/results-paper.md")
REPORT = Path("results/report")
PAPER = f"{PROFILE}paper"
FIRST: Settings = ("backbones=[small]", "strengths=[strong]")
"""Restricts the run before to its first backbone and verifier; each variant changes more."""
SHARES = {"weak": 0.016, "twentieth": 0.05, "fifth": 0.2, "strong": 1.0}
"""Verifiers by the share of the training after which they stop."""
FULL, BEST = method_name(FULL_METHOD), method_name(HULL)
GAINS = "Difference to the hull for a mean of at most B verifier calls"
POINTS, CALLS = "Accuracy of full minus", "Verifier calls of full over"
TARGET = re.compile(rf"({POINTS}|{CALLS}) (.+?)(, points)?")
LESS = " (no more tokens)"
"""After a baseline with its N, which generates no more tokens than the full method."""
ORACLE = "Oracle, only where needed"
Row = Mapping[str, str]


@dataclass(frozen=True)
class Report:
    """The tables of a run's report, as they are printed, and the sentence of its origin."""

    text: str
    origin: str

    @classmethod
    def of_the_last_run(cls) -> Report:
        """The report that is here.

        Raises:
            ArtifactError: it is missing, or is not of the parameters that are here.
        """
        origin, changes = find_origin(Path.cwd(), REPORT), changed_parameters(Path.cwd())
        if origin is None or origin.changes != changes:
            raise ArtifactError(
                f"{REPORT}: expected the report of {', '.join(changes) or 'no changes'}"
            )
        return cls(reported(REPORT, REPORT_NAME).read_text("utf-8"), origin.sentence)

    def rows(self, title: str) -> dict[str, Row]:
        """A section's table, its rows by their first cell."""
        lines = section(self.text, title).partition("\n\n")[0].splitlines()
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        return {row[0]: dict(zip(head, row, strict=True)) for row in rows}

    def targets(self) -> dict[str, dict[str, str]]:
        """What is measured of full beside another method, with interval, by method and by what."""
        found: dict[str, dict[str, str]] = {}
        for name, row in self.rows("Targets").items():
            if told := TARGET.fullmatch(name):
                digits = "+z.1f" if told[3] else "z.2f"
                numbers = (row["Measured"], *row["95 % interval"].split(" to "))
                value, *ends = (_rounded(number, digits) for number in numbers)
                cell = f"{value} [{', '.join(ends)}]"
                found.setdefault(told[2], {})[told[1]] = cell
        return found


def shares(_: Report, report: Report) -> str:
    """The full method by how long its verifier was trained."""
    heads = ("Trained for", "AUC of first errors", "Full minus hull at 2 calls, points", "At 4")
    lines = [(*heads, "At 8", "Full at 8 calls, %", "Hull at 8 calls, %")]
    for name, share in SHARES.items():
        facts = Path(f"models/small-{name}/verifier/metrics.json")
        known = json.loads(facts.read_text("utf-8"))["validation_decision_auc"]
        strength = "" if name == "strong" else f", verifier {name}"
        rows = report.rows(MAIN_SECTION.replace(", %", f"{strength}, %"))
        cells = [rows[FULL][f"B = {level}"] for level in (2, 4, 8)]
        gains = (cell.partition("(")[2].rstrip(")") for cell in cells)
        ends = _first(cells[-1]), rows[BEST]["B = 8"]
        lines.append((f"{100 * share:g} %", f"{known:.3f}", *gains, *ends))
    return as_table(lines)


def parts(_: Report, report: Report) -> str:
    """Each part left out: points to the hull by calls, and at N = 64 beside the full method."""
    levels = [f"B = {level}" for level in (1, 2, 4, 8)]
    gains, left_out = report.rows(GAINS), report.rows("One part left out")
    lines = [("", *levels, "N = 64: accuracy, to full's", "N = 64: calls, over full's")]
    for name in map(method_name, (FULL_METHOD, "ranker_only", *PARTS)):
        own = left_out.get(name, {})
        at_64 = (own.get(head, "-") for head in ("Difference to full, points", "Calls over full's"))
        lines.append((name, *(gains[name][level] for level in levels), *at_64))
    return as_table(lines)


def grid(before: Report, report: Report) -> str:
    """The large grid of the full method beside the default one: by calls, and at N = 64."""
    both = {"32": before, "216": report}
    levels = [f"B = {level}" for level in (1, 2, 4, 8, 16)]
    lines = [("Settings", *levels)]
    columns: list[dict[str, str]] = []
    for count, one in both.items():
        titles = (MAIN_SECTION, GAINS, f"{GAINS}, over all divisions into folds")
        accuracy, gain, average = (one.rows(title)[FULL] for title in titles)
        cells = (
            f"{_first(accuracy[level])}; {gain[level]}; {_first(average[level])}"
            for level in levels
        )
        lines.append((count, *cells))
        columns.append(_at_64(one))
    second = [("At N = 64", *(f"{count} settings" for count in both))]
    second += [(name, *(column[name] for column in columns)) for name in columns[0]]
    return f"{as_table(lines)}\n\n{as_table(second)}"


def _at_64(report: Report) -> dict[str, str]:
    """What one grid reaches at N = 64."""
    main, targets = report.rows("Main table")[FULL], report.targets()
    average = report.rows("Settings chosen by cross-validation")[FULL]
    near = report.rows("Calls to come near the best of the hull")[FULL]
    best, less = (
        next((name for name in targets if name.endswith(LESS) == alike), "-")
        for alike in (False, True)
    )
    none = {POINTS: "-", CALLS: "-"}
    own = {name: targets.get(name, none) for name in (best, less, "Gates-only", ORACLE)}
    return {
        "Accuracy, %": main["Accuracy, %"],
        "The same on average over 20 divisions": average["Accuracy over repetitions, %"],
        "Calls": main["Verifier calls"],
        "The best baseline with gates": best,
        "Points to the best baseline with gates": own[best][POINTS],
        "Calls over those of the best baseline with gates": own[best][CALLS],
        "The best baseline without more tokens": less.removesuffix(LESS),
        "Points to the best baseline that generates no more tokens": own[less][POINTS],
        "Calls over those of that baseline": own[less][CALLS],
        "Points to gates-only with the same settings": own["Gates-only"][POINTS],
        "Calls over those of gates-only with the same settings": own["Gates-only"][CALLS],
        "Calls over those of an oracle that calls only where needed": own[ORACLE][CALLS],
        "Calls to come within one point of the hull's best accuracy": near["Verifier calls"],
        "The same over the hull's calls": near["Over the hull's calls"],
    }


def _rounded(number: str, digits: str) -> str:
    """A number of the report with fewer digits; a dash stays."""
    return "-" if number == "-" else format(float(number), digits)


def _first(cell: str) -> str:
    return cell.partition(" ")[0]


def as_table(lines: Sequence[Sequence[str]]) -> str:
    """In Markdown, all but the first column to the right."""
    head, *rows = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join((head, f"| --- |{' ---: |' * (len(lines[0]) - 1)}", *rows))


VARIANTS: Mapping[str, tuple[Callable[[Report, Report], str], Settings]] = {
    "parts": (parts, ("evaluation.leave_one_out=true",)),
    "grid": (grid, ()),
    "shares": (
        shares,
        (
            f"strengths=[{', '.join(reversed(SHARES))}]",
            *(f"++verifier.share.{name}={share}" for name, share in SHARES.items()),
        ),
    ),
}
"""By the name of their place on the page: what fills it, and what they change, else a profile."""


def main() -> None:
    """Run the variants and fill their places on ``PAGE``.

    Raises:
        ParamsError: the parameters are not those of the paper's scale.
        ArtifactError: the report that is here is of others.
    """
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--only", choices=VARIANTS)
    only = asked.parse_args().only
    if (changes := changed_parameters(Path.cwd())) != (PAPER,):
        raise ParamsError(
            f"{PARAMS_FILE}: given {', '.join(changes) or 'no changes'}, expected {PAPER} "
            "(make run PROFILE=paper)"
        )
    before, text = Report.of_the_last_run(), PARAMS_FILE.read_text(encoding="utf-8")
    try:
        for name, (table, changes) in VARIANTS.items():
            if only in (None, name):
                PARAMS_FILE.write_text(text, encoding="utf-8")
                changed = params_with(FIRST, changes or profile_settings(name), origin=PARAMS_FILE)
                started = time.monotonic()
                PARAMS_FILE.write_text(changed, encoding="utf-8")
                run()
                report = Report.of_the_last_run()
                minutes = f"{(time.monotonic() - started) / 60:.0f} minutes"
                block = f"{table(before, report)}\n\n{report.origin.rstrip('.')}; {minutes}."
                begin, end = (f"<!-- {name}:{place} -->" for place in ("begin", "end"))
                page = replaced(PAGE, f"\n{block}\n", begin, end)
                with atomic_path(PAGE) as temporary:
                    temporary.write_text(page, encoding="utf-8")
    finally:
        PARAMS_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except SelverifyError as error:
        sys.exit(f"error: {error}")
