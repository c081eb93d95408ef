"""``make real``: the measurements on what others recorded, as pages of the documentation."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import recorded
import recorded_game24
import recorded_prm800k
import recorded_rankers
import recorded_samples
from recorded import ROOT, Fact, Refusal, Walked, row

from selverify.data.equivalence import CORRECT
from selverify.experiment.statistics import wilson_interval
from selverify.report.pages import write_text

PAGE = ROOT / "docs" / "real-text.md"
RUNS_PAGE = ROOT / "docs" / "recorded-runs.md"
FIGURES = ROOT / "docs" / "figures" / "recorded"
SHOWN = 100
HEADING = """# Gates and grading on text that others recorded

Written by `make real` at commit `{commit}`. The records belong to other projects, which are
listed at the end. The reader of arithmetic was tuned on the training splits of GSM8K and MATH. The
rule for a second binding of a symbol was decided on ProcessBench, the words that take a claim back
were checked on it and on PRM800K, and the rule for dollars around a side was chosen on the same
facts that are counted under Grading.

"""

RUNS_HEADING = """# Recorded runs of language models

Written by `make real` at commit `{commit}`. What selective verification would have saved on runs
that others made and recorded: the order and the number of verifier calls are ours, the moves, the
samples and the verdicts are theirs. Each part says which records it used and how many were left
out. How to ask the same of logs of your own stands in [recorded-log.md](recorded-log.md).
Intervals are at 95 % and resample problems, because the states of one problem are not independent.

"""


def main() -> None:
    """Measure everything and write the two pages.

    Raises:
        SystemExit: the recorded data is not there.
    """
    if not recorded.DATA.is_dir():
        sys.exit(f"{recorded.DATA}: no such folder; SELVERIFY_DATA names the recorded data")
    measured = commit()  # before a page is written, which is a change
    write_page(PAGE, HEADING.format(commit=measured), text_sections())
    FIGURES.mkdir(parents=True, exist_ok=True)
    write_page(RUNS_PAGE, RUNS_HEADING.format(commit=measured), run_sections())


def write_page(path: Path, heading: str, lines: Iterable[str]) -> None:
    """One page of the documentation."""
    write_text(heading + "\n".join(lines) + "\n", path)
    print(f"{path.relative_to(ROOT)} written")


def text_sections() -> Iterator[str]:
    """Gates and grading on text."""
    for section in (golds, rules, mistakes, process_bench, proofs, grading):
        yield from section()
    yield "\n## Records\n"
    yield from (
        "- GSM8K (openai/grade-school-math, MIT), MATH and MATH-500 (MIT)",
        "- BIG-Bench-Mistake (WHGTyen/BIG-Bench-Mistake, Apache-2.0): half of one task",
        "- ProcessBench (Apache-2.0): about half of the subsets gsm8k and math",
        "- Natural Program proofs (lz1oceani/verify_cot, CC-BY-4.0): about half",
        "- Grading facts: the test suites of the projects named in the table, about 60 % of them",
    )


def run_sections() -> Iterator[str]:
    """What recorded runs say of the method, and the figures."""
    for measured in (recorded_game24, recorded_prm800k, recorded_samples, recorded_rankers):
        yield from measured.section()
        yield ""
    yield "## Figures\n"
    for path in recorded_samples.figures(FIGURES):
        if path.suffix == ".svg":
            yield f"![{path.stem.replace('_', ' ')}]({path.relative_to(RUNS_PAGE.parent)})\n"
    yield "## Records\n"
    yield from (
        "- Game of 24: princeton-nlp/tree-of-thought-llm, "
        "microsoft/Everything-of-Thoughts-XoT (MIT)",
        "- PRM800K, phase 1 test (MIT), its prefixes from PRMBench (Apache-2.0): about half of it",
        "- MATH-500 x 32: staged-benchmark-2026/StrictPRMBench (CC-BY-4.0)",
        "- Llama 3.2 1B and 3B: mert-cemri/search-and-learn and three other forks (Apache-2.0), "
        "about 60 % of the problems",
    )


def commit() -> str:
    """The commit that is measured, with a mark where files have changed since."""
    run = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def golds() -> Iterator[str]:
    """Right steps that the gates refuse."""
    walks: dict[str, Walked] = {
        "GSM8K test, lines": recorded.gsm8k_golds("test"),
        "MATH-500, paragraphs": recorded.math500_golds(),
        "GSM8K train, lines (tuned on)": recorded.gsm8k_golds("train"),
        "MATH train, paragraphs (tuned on)": recorded.math_train_golds(),
    }
    yield "## Written solutions\n"
    yield "| | steps | with an arithmetic claim | refused | share of steps [95 %] |"
    yield "| --- | ---: | ---: | ---: | --- |"
    for name, walked in walks.items():
        claims = f"{walked.with_claims:,} ({percent(walked.with_claims / walked.steps)})"
        refused = len(walked.refusals)
        cells = (name, f"{walked.steps:,}", claims, str(refused), share(refused, walked.steps))
        yield row(cells)
    yield "\nEvery refused step of the two test sets (false, unless the solution is wrong):\n"
    tests = list(walks.values())[:2]
    yield from refusals(refusal for walked in tests for refusal in walked.refusals)


def rules() -> Iterator[str]:
    """What each rule refuses on text to choose by; wrong steps are marked in two of the sources."""
    yield "\n## Rules that were tried\n"
    yield (
        "By these sources it was chosen what a step is refused for. Steps of written solutions "
        "count as right, those of a proof as the whole proof does. Lift: the share of wrong steps "
        "among the refused ones over their share among all. A rule is kept where its lift is "
        "clearly above 1; the rules with none are not in the gates, and are measured by a copy. "
        "The rated candidates are on problems of MATH-500, so what the gates do to them is no "
        "held-out figure; ProcessBench and BIG-Bench-Mistake below had no part in the choice.\n"
    )
    yield "| refused if a step | source | of wrong steps | of right steps | wrong [95 %] | lift |"
    yield "| --- | --- | ---: | ---: | --- | ---: |"
    measured = {source: recorded.tried_rules(source) for source in recorded.SOURCES}
    for rule in recorded.RULES:
        for source, (steps, refused) in measured.items():
            yield row((rule, source, *rule_cells(steps, refused[rule])))


def rule_cells(steps: Counter[bool], refused: Counter[bool]) -> tuple[str, ...]:
    """What one rule refuses of one source."""
    wrong, right = (f"{refused[kind]} of {steps[kind]:,}" for kind in (False, True))
    if not steps[False]:
        return ("", right, "", "")
    if not refused.total():
        return (wrong, right, "", "none")
    lift = refused[False] / refused.total() / (steps[False] / steps.total())
    return (wrong, right, share(refused[False], refused.total()), f"{lift:.2f}")


def mistakes() -> Iterator[str]:
    """Marked mistakes in multi-step arithmetic."""
    found, disputed = recorded.marked_mistakes()
    caught, missed = found["mistake", True], found["mistake", False]
    refused, kept = found["right", True], found["right", False]
    yield "\n## BIG-Bench-Mistake, multi-step arithmetic\n"
    yield f"Marked mistakes that are refused: {told(caught, caught + missed)}.\n"
    yield f"Steps marked right that are refused: {told(refused, refused + kept)}:\n"
    yield from refusals(disputed)


def process_bench() -> Iterator[str]:
    """Where the first refused step stands in a solution."""
    found, disputed = recorded.first_refusals()
    yield "\n## ProcessBench\n"
    yield "Where the first refused step of a solution stands:\n"
    head = ("subset", "wrong solutions", "at the first error", "after it", "before it")
    yield row((*head, "right solutions", "in these"))
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for subset in sorted({name for name, _ in found}):
        places = ("wrong", "at", "after", "before", "right", "in right")
        yield row((subset, *(str(found[subset, place]) for place in places)))
    total: Counter[str] = Counter()
    for (_, place), count in found.items():
        total[place] += count
    late, early = total["at"] + total["after"], total["before"] + total["in right"]
    yield f"\nAt or after the first error: {told(late, late + early)}.\n"
    yield f"Wrong solutions with a refused step: {told(late + total['before'], total['wrong'])}.\n"
    yield "Refused before any error that people marked:\n"
    yield from refusals(disputed)


def proofs() -> Iterator[str]:
    """What is refused in proofs with numbered premises."""
    found = recorded.numbered_proofs()
    yield "\n## Proofs with numbered premises\n"
    yield "| people's verdict | nothing refused | arithmetic first | other first |"
    yield "| --- | ---: | ---: | ---: |"
    for verdict in ("valid", "not valid"):
        counts = {reason: count for (key, reason), count in found.items() if key == verdict}
        first = [counts.pop(reason, 0) for reason in ("nothing", "arithmetic")]
        yield row((verdict, *map(str, (*first, sum(counts.values())))))


def grading() -> Iterator[str]:
    """Golds against themselves, and recorded facts by source."""
    yield "\n## Grading\n"
    for name, (right, count) in recorded.golds_against_themselves().items():
        yield f"- {name}: the written solution's answer grades correct in {right:,} of {count:,}."
    facts = recorded.grading_facts()
    yield "\nRecorded facts (gold, answer, equal or not) that are met:\n"
    head = ("source", "facts", "selverify", "Math-Verify alone")
    yield row((*head, "false positives", "of Math-Verify alone"))
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for source in (*sorted({fact.source for fact in facts}), "all"):
        own = [fact for fact in facts if source in (fact.source, "all")]
        ours = [(fact.status == CORRECT, fact.equal) for fact in own]
        alone = [(fact.alone == CORRECT, fact.equal) for fact in own]
        counts = (len(own), met(ours), met(alone), false_positives(ours), false_positives(alone))
        yield row((source, *map(str, counts)))
    wrong = [fact for fact in facts if (fact.status == CORRECT) != fact.equal]
    yield f"\nThe {len(wrong)} that are not met:\n"
    yield "| source | gold | answer | expected | selverify | why |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for fact in wrong:
        expected = "equal" if fact.equal else "not equal"
        cells = (fact.source, code(fact.gold), code(fact.answer), expected)
        yield row((*cells, fact.status, reason(fact)))


def met(pairs: Iterable[tuple[bool, bool]]) -> int:
    """How many statuses are as expected."""
    return sum(found == expected for found, expected in pairs)


def false_positives(pairs: Iterable[tuple[bool, bool]]) -> int:
    """How many are called equal and are not."""
    return sum(found and not expected for found, expected in pairs)


REASONS = {
    ("$9$", "Answer $ \n 9 \n $"): "policy: a test of delimiters, the value is equal",
    ("$9$", "Answer \\( \n 9 \n \\)"): "policy: a test of delimiters, the value is equal",
    ("10", "10cm"): "policy: units; the same source has 10 = 10 cm^2",
    ("", ""): "policy: no answer is not an answer",
    ("3.1416", "3.14159"): "policy: rounding to four decimals",
    ("x + 1.414I", "x + \\sqrt2I"): "policy: rounding",
    ("i(2-i)", "1+2i"): "ours wrong: i is read as a letter",
    ("8\\sqrt{6}", "\\beginboxed{8\\sqrt{6}}"): "policy: no such command",
    ("y = 2x + 3", "f(x) = 2x + 3"): "policy: another function's name",
    ("08:34 \\text{P.M.}", "20:34"): "ours wrong: times of day",
    ("[0.5, 1]", "\\begin{matrix} \\frac12 \\\\ 1 \\end{matrix}"): "policy: a list is no column",
}


def reason(fact: Fact) -> str:
    """Ours wrong, policy, or source wrong."""
    known = REASONS.get((fact.gold, fact.answer))
    if known is not None:
        return known
    as_wrong = (fact.alone == CORRECT) != fact.equal
    return f"ours wrong, as Math-Verify is ({fact.status})" if as_wrong else "ours wrong"


def refusals(found: Iterable[Refusal]) -> Iterator[str]:
    """A list of refused steps."""
    listed = list(found)
    for refusal in listed:
        where = f"{refusal.record}, step {refusal.step}"
        yield f"- {where}: {code(refusal.reason)} in {code(refusal.text)}"
    if not listed:
        yield "None."


def code(text: str) -> str:
    """One line of code, shortened, safe in a table."""
    line = " ".join(text.split())
    line = line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
    return f"`` {line} ``".replace("|", "\\|") if line else "(empty)"


def told(part: int, whole: int) -> str:
    """A share with its counts and its interval."""
    return f"{part} of {whole}, {share(part, whole)}"


def share(part: int, whole: int) -> str:
    """A share with its Wilson interval."""
    found = wilson_interval(float(part), whole)
    return f"{percent(found.value)} [{percent(found.low)}, {percent(found.high)}]"


def percent(value: float) -> str:
    """Two digits after the point below one percent, one above."""
    return f"{100 * value:.2f} %" if value < 0.01 else f"{100 * value:.1f} %"


if __name__ == "__main__":
    main()
