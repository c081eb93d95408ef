"""Text that others recorded, and what the gates and the grader make of it.

The files are not part of the project; ``SELVERIFY_DATA`` says where they are.
"""

from __future__ import annotations

import gzip
import importlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from selverify.data.equivalence import CORRECT, UNPARSED
from selverify.data.grading import MAX_ANSWER, Grader
from selverify.domains.answers import stated_answer
from selverify.domains.base import split_moves
from selverify.domains.claims import find_claims
from selverify.domains.math_steps import MathSteps
from selverify.search.gates import reject
from selverify.types import Move, State

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("SELVERIFY_DATA", ROOT.parent / "shared" / "data"))
DOMAIN = MathSteps()
FIGURE = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
LABEL = re.compile(r"^[\s*-]*#\s?(\d{1,4})[.:](?!\d)", re.MULTILINE)
CITED = re.compile(r"\(by ((?:#\d{1,4}[ ,and]*)+)\)")
NUMBER = re.compile(r"#(\d{1,4})")
WORDS_OF_A_STEP = 4
SECONDS = 5.0
WORKERS = 2
Record = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """Step ``step`` of record ``record``, and why it was refused."""

    record: str
    step: int
    reason: str
    text: str


@dataclass(frozen=True)
class Walked:
    """How many steps were walked, how many hold a claim, and which were refused."""

    steps: int
    with_claims: int
    refusals: tuple[Refusal, ...]


def row(cells: Iterable[object]) -> str:
    """One line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def paragraphs(solution: str) -> tuple[str, ...]:
    """The steps of a written solution, without the code of its figures."""
    return tuple(split_moves(FIGURE.sub("", solution), DOMAIN.end_of_move))


def records(name: str) -> list[Record]:
    """The records of a JSON lines file, compressed or not."""
    path = DATA / name
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def walk(name: str, problem: str, steps: Sequence[str]) -> Walked:
    """Every step through both gates; a refused one is written down all the same."""
    state: State = DOMAIN.initial_state(DOMAIN.read(problem, problem_id=name), budget=1)
    with_claims, refusals = 0, []
    for number, text in enumerate(steps):
        move = DOMAIN.parse(text)
        refused = reject(DOMAIN, state, candidate=move)
        if refused is not None:
            refusals.append(Refusal(name, number, refused.reason, text))
        if isinstance(move, Move):
            with_claims += bool(getattr(move.args, "claims", ()))
            state = DOMAIN.apply(state, move)
    return Walked(len(steps), with_claims, tuple(refusals))


def together(parts: Iterator[Walked]) -> Walked:
    """The sum of several walks."""
    walked = list(parts)
    return Walked(
        sum(one.steps for one in walked),
        sum(one.with_claims for one in walked),
        tuple(refusal for one in walked for refusal in one.refusals),
    )


def gsm8k_golds(split: str) -> Walked:
    """Lines of the written solutions of GSM8K."""
    rows = records(f"problems/gsm8k_{split}.jsonl.gz")
    return together(
        walk(
            f"gsm8k-{split}-{number}",
            row["question"],
            [line for line in row["answer"].split("\n") if line.strip()],
        )
        for number, row in enumerate(rows)
    )


def math500_golds() -> Walked:
    """Paragraphs of the written solutions of MATH-500."""
    return together(
        walk(row["unique_id"], row["problem"], paragraphs(row["solution"]))
        for row in records("problems/math500.jsonl")
    )


def math_train_golds() -> Walked:
    """Paragraphs of the written solutions of the MATH training split."""
    return together(
        walk(str(row["id"]), row["problem"], paragraphs(row["solution"]))
        for row in records("problems/math12500.jsonl.gz")
        if row["split"] == "train"
    )


def marked_mistakes() -> tuple[Counter[tuple[str, bool]], tuple[Refusal, ...]]:
    """BIG-Bench-Mistake arithmetic: (kind of step, refused), and the refused steps marked right.

    Steps after the marked mistake are left out: they may follow rightly from it.
    """
    found: Counter[tuple[str, bool]] = Counter()
    disputed: list[Refusal] = []
    for number, row in enumerate(records("steps/bigbench_mistake_arithmetic.jsonl.gz")):
        mistake = row["mistake_index"]
        steps = row["steps"] if mistake is None else row["steps"][: mistake + 1]
        walked = walk(f"multistep-{number}", row["input"], steps)
        refused = {refusal.step: refusal for refusal in walked.refusals}
        for step in range(len(steps)):
            found["mistake" if step == mistake else "right", step in refused] += 1
            if step != mistake and step in refused:
                disputed.append(refused[step])
    return found, tuple(disputed)


def first_refusals() -> tuple[Counter[tuple[str, str]], tuple[Refusal, ...]]:
    """ProcessBench: where the first refused step stands, and those before any marked error.

    Keys are (subset, place): place is ``wrong`` and ``right`` for all solutions of that kind, and
    ``at``, ``after``, ``before`` (the first wrong step) or ``in right`` for a refused step.
    """
    found: Counter[tuple[str, str]] = Counter()
    disputed: list[Refusal] = []
    for row in records("steps/processbench.jsonl.gz"):
        subset, first_error = row["subset"], row["label"]
        found[subset, "wrong" if first_error >= 0 else "right"] += 1
        refusals = walk(row["id"], row["problem"], row["steps"]).refusals
        if not refusals:
            continue
        place = _place(refusals[0].step, first_error)
        found[subset, place] += 1
        if place in ("before", "in right"):
            disputed.append(refusals[0])
    return found, tuple(disputed)


def _place(step: int, first_error: int) -> str:
    if first_error < 0:
        return "in right"
    return "at" if step == first_error else "after" if step > first_error else "before"


def numbered_proofs() -> Counter[tuple[str, str]]:
    """Natural-Program proofs: (verdict of people, what was refused first)."""
    found: Counter[tuple[str, str]] = Counter()
    for number, row in enumerate(records("steps/verify_cot_human.jsonl.gz")):
        verdict = "valid" if row["flag"] else "not valid"
        steps = [*split_moves(row["answer"], DOMAIN.end_of_move)]
        refusals = walk(f"{row['task']}-{number}", row["question"], steps).refusals
        found[verdict, refusals[0].reason.partition(":")[0] if refusals else "nothing"] += 1
    return found


class Tried(NamedTuple):
    """A step, what stands before it, and whether people call it right."""

    problem: str
    before: tuple[str, ...]
    text: str
    right: bool


def gsm8k_lines() -> Iterator[Tried]:
    """Lines of the written solutions of GSM8K train; all count as right."""
    for row in records("problems/gsm8k_train.jsonl.gz"):
        lines = [line for line in row["answer"].split("\n") if line.strip()]
        yield from _in_order(row["question"], lines, right=True)


def math_paragraphs() -> Iterator[Tried]:
    """Paragraphs of the written solutions of MATH train; all count as right."""
    for row in records("problems/math12500.jsonl.gz"):
        if row["split"] == "train":
            yield from _in_order(row["problem"], paragraphs(row["solution"]), right=True)


def rated_candidates() -> Iterator[Tried]:
    """The candidates of PRM800K whose prefix is known, rated one by one."""
    for row in records("candidates/prm800k_phase1test_candidates.jsonl.gz"):
        if row["prefix"] is not None:
            for one in row["candidates"]:
                before = tuple(row["prefix"])
                yield Tried(row["problem"], before, one["text"], bool(one["label"]))


def cited_steps() -> Iterator[Tried]:
    """The steps of the Natural-Program proofs, each as right as its whole proof."""
    for row in records("steps/verify_cot_human.jsonl.gz"):
        steps = [*split_moves(row["answer"], DOMAIN.end_of_move)]
        yield from _in_order(row["question"], steps, right=bool(row["flag"]))


def _in_order(problem: str, steps: Sequence[str], *, right: bool) -> Iterator[Tried]:
    for place, text in enumerate(steps):
        yield Tried(problem, tuple(steps[:place]), text, right)


def false_arithmetic(one: Tried) -> bool:
    """The rule that is kept."""
    return any(not claim.holds for claim in find_claims(one.text))


def repeats(one: Tried) -> bool:
    """The same words as an earlier step, four at least."""
    words = one.text.split()
    return len(words) >= WORDS_OF_A_STEP and words in [text.split() for text in one.before]


def cites_nothing(one: Tried) -> bool:
    """A premise beyond the last label that begins a line."""
    cited = [int(number) for part in CITED.findall(one.text) for number in NUMBER.findall(part)]
    texts = (one.problem, *one.before, one.text)
    labels = [int(number) for text in texts for number in LABEL.findall(text)] if cited else []
    return bool(labels) and max(cited) > max(labels)


SOURCES: Mapping[str, Callable[[], Iterator[Tried]]] = {
    "GSM8K train, lines": gsm8k_lines,
    "MATH train, paragraphs": math_paragraphs,
    "PRM800K, rated candidates": rated_candidates,
    "Natural Program, steps of rated proofs": cited_steps,
}
RULES: Mapping[str, Callable[[Tried], bool]] = {
    "states arithmetic that no reading makes true": false_arithmetic,
    "repeats an earlier step": repeats,
    "cites a premise beyond the last label": cites_nothing,
}


def tried_rules(source: str) -> tuple[Counter[bool], dict[str, Counter[bool]]]:
    """Steps of a source by whether they are right: all of them, and what each rule refuses."""
    steps: Counter[bool] = Counter()
    refused = {rule: Counter[bool]() for rule in RULES}
    for one in SOURCES[source]():
        steps[one.right] += 1
        for rule, refuses in RULES.items():
            refused[rule][one.right] += refuses(one)
    return steps, refused


def golds_against_themselves() -> dict[str, tuple[int, int]]:
    """(graded correct, all): the answer stated in each written solution against the gold."""
    math = [
        (row["answer"], stated_answer(row["solution"])) for row in records("problems/math500.jsonl")
    ]
    gsm8k = [
        (row["answer"].rpartition("####")[2].strip(), stated_answer(row["answer"]))
        for row in records("problems/gsm8k_test.jsonl.gz")
    ]
    found = {}
    with Grader(SECONDS, WORKERS) as grader:
        for name, pairs in (("MATH-500", math), ("GSM8K test", gsm8k)):
            found[name] = (sum(one.correct for one in grader.grade_many(pairs)), len(pairs))
    return found


@dataclass(frozen=True)
class Fact:
    """A recorded fact about two answers, and what was made of it."""

    source: str
    gold: str
    answer: str
    equal: bool
    status: str
    alone: str


def grading_facts() -> tuple[Fact, ...]:
    """Every recorded (gold, answer, equal or not), by our grader and by Math-Verify alone.

    Neither is asked about a text that is longer than an answer may be.
    """
    rows = records("grading/grading_triples.jsonl.gz")
    pairs = [(row["gold"], row["pred"]) for row in rows]
    with Grader(SECONDS, WORKERS) as grader:
        ours = [grade.status for grade in grader.grade_many(pairs)]
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as workers:
        alone = list(workers.map(math_verify_alone, *zip(*pairs, strict=True)))
    alone = [
        UNPARSED if max(map(len, pair)) > MAX_ANSWER else status
        for pair, status in zip(pairs, alone, strict=True)
    ]
    return tuple(
        Fact(row["source"], row["gold"], row["pred"], row["expected"], *statuses)
        for row, *statuses in zip(rows, ours, alone, strict=True)
    )


def math_verify_alone(gold: str, answer: str) -> str:
    """Math-Verify on the two texts as they stand; runs in a process of its own."""
    backend = importlib.import_module("math_verify")
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # its own alarms are off
    left, right = (backend.parse(side, parsing_timeout=None) for side in (gold, answer))
    return CORRECT if backend.verify(left, right, timeout_seconds=None) else "wrong"
