r"""Benchmarks of text questions, from a file or from the Hugging Face hub.

Knows: what a file of questions must hold, the layouts of MATH-500, GSM8K and the MATH training
split, and how splits without a common question are drawn. Does not know: parameters, stages, or
what a domain makes of a question.

A file is .jsonl, .jsonl.gz, .json (one list) or .parquet. A record has ``question`` or ``problem``,
and its gold is the first of ``answer``, ``final_answer``, ``expected_answer``, ``gold`` and
``solution`` that states one: on a last line ``#### gold``, in the last ``\boxed{}``, or (not in a
``solution``) as the whole field. ``unique_id`` or ``id``, ``level``, and ``subject`` or ``type``
may be there; other fields are ignored, and without an id a record gets the file's name and number.

    {"question": "How many legs have 4 cats?", "answer": "16", "id": "legs-1", "level": 1}

Downloads were tried against a stand-in for the hub only, never against the hub itself. Its
repositories, revisions and counts are as published.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from huggingface_hub import hf_hub_download

from selverify.data.benchmark import FURTHER, TRANSFER, Task, check_leaks
from selverify.data.equivalence import WRONG
from selverify.data.grading import MAX_ANSWER, compare_quickly
from selverify.data.question_files import (
    ANSWER_FIELDS,
    FIELDS,
    ID_FIELDS,
    QUESTION_FIELDS,
    SHOWN,
    SOLUTION_FIELD,
    SUBJECT_FIELDS,
    QuestionRecord,
    question_records,
    suffix_of,
)
from selverify.domains.answers import extract_boxed
from selverify.domains.base import Domain
from selverify.errors import ArtifactError, LeakError, ParamsError, SchemaError
from selverify.types import Truth

MAX_QUESTION = 50_000
"""Characters of a question."""

_THOUSANDS = re.compile(r"[-+$\u20ac\u00a3]*\d{1,3}(?:,\d{3})+(?:\.\d*)?%?", re.ASCII)
_SPACING = re.compile(r"(\\\\)|\\[,;:!>\s]|\\q?quad(?![A-Za-z])|[~\u200b-\u200d\u2060\ufeff]")


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """A public benchmark: a file of a dataset on the hub, and what must be in it.

    ``without_gold``: so many of its ``records`` state no gold and are left out. ``ids``: the field
    that identifies a record, or None where its number does.
    """

    repository: str
    file: str
    revision: str
    records: int
    without_gold: int = 0
    ids: str | None = None


_GSM8K = ("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866")

KNOWN: Mapping[str, BenchmarkSource] = MappingProxyType(
    {
        "math500": BenchmarkSource(
            repository="HuggingFaceH4/MATH-500",
            file="test.jsonl",
            revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            records=500,
            ids="unique_id",
        ),
        "math_train": BenchmarkSource(
            repository="nlile/hendrycks-MATH-benchmark",
            file="data/train-00000-of-00001.parquet",
            revision="465bcdb36f5962aa3512891498966df785fc3c18",
            records=12_000,  # without their ids: one of them is reported to occur twice
            without_gold=2,  # MATH itself has two solutions that end in an empty box
        ),
        "gsm8k": BenchmarkSource(
            repository=_GSM8K[0],
            file="main/test-00000-of-00001.parquet",
            revision=_GSM8K[1],
            records=1_319,
        ),
        "gsm8k_train": BenchmarkSource(
            repository=_GSM8K[0],
            file="main/train-00000-of-00001.parquet",
            revision=_GSM8K[1],
            records=7_473,
        ),
    }
)
"""MATH-500 and the other 12,000 problems of MATH (the split of PRM800K); GSM8K's two splits."""


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """A question and its gold answer; level and subject where they are known.

    ``written`` is the whole text of the field that states the gold, often a solution. Copies of a
    benchmark differ in it, so that it tells no questions apart.
    """

    question_id: str
    text: str
    answer: str
    level: str | None
    subject: str | None
    written: str = field(default="", compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """Equal for questions that count as the same one; see ``fingerprint``."""
        return fingerprint(self.text)


@dataclass(frozen=True, slots=True)
class Questions:
    """What ``source`` holds: each text once, in file order."""

    source: str
    items: tuple[TextQuestion, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """``problems`` questions of ``pool``, shuffled with ``seed``."""

    pool: Questions
    problems: int
    seed: int


def load_questions(path: Path) -> Questions:
    """The questions of a file as the module's text says.

    Raises:
        ArtifactError: there is no such file.
        ParamsError: the file's name ends in none of the four ways.
        SchemaError: the file is not one of questions; names the line, what it holds and what was
            expected there.
    """
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected one, or one of {', '.join(KNOWN)}")
    return _questions(path, name=path.name.removesuffix(suffix_of(path)), known=None)


def load_known(name: str, path: Path | None) -> Questions:
    """The benchmark ``name`` of ``KNOWN``: from the hub, or from a local copy at ``path``.

    A copy may have any layout of the module's text, and must have as many records.

    Raises:
        ArtifactError: there is no such file, or the hub does not give it.
        ParamsError: there is no such benchmark, or as ``load_questions``.
        SchemaError: as ``load_questions``.
    """
    if name not in KNOWN:
        raise ParamsError(f"benchmark: given {name!r}, expected one of {', '.join(KNOWN)}")
    if path is None:
        path = _downloaded(name)
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; expected a copy of {name}")
    return _questions(path, name=name, known=KNOWN[name])


def without(pool: Questions, held_out: Questions) -> Questions:
    """``pool`` less every question whose text stands in ``held_out``."""
    marks = {question.fingerprint for question in held_out.items}
    kept = tuple(question for question in pool.items if question.fingerprint not in marks)
    return Questions(f"{pool.source} without {held_out.source}", kept)


def fingerprint(text: str) -> str:
    """A hash of the text without case, white space and the spacing commands of LaTeX.

    ``Evaluate $\\log_8 2$.`` and ``Evaluate $\\log_82$.`` count as one question; both are in MATH.
    """
    squeezed = "".join(_SPACING.sub(r"\1", text).split()).casefold()
    return hashlib.blake2b(squeezed.encode(), digest_size=16).hexdigest()


def tasks_from(
    domain: Domain,
    *,
    train: Draw,
    validation: Draw,
    test: Draw,
    further: Draw | None = None,
    transfer: Draw | None = None,
) -> tuple[Task, ...]:
    """Tasks of the splits, test first, then validation, train, further ones for verifier and
    ranker, and questions to transfer to.

    A split is the first ``problems`` of its pool, shuffled with its seed, that no earlier split
    took: more of them keep the fewer. A test that takes its whole pool keeps the file's order, so
    MATH-500 stays MATH-500. Splits may draw from the same pool, or from pools without a common
    question (``without``). A truth's facts are the question's level and subject.

    Raises:
        LeakError: two different pools share a question; names both, and both splits.
        ParamsError: a split asks for more questions than are left.
        SchemaError: two different pools share an id, or the domain cannot read a question.
    """
    draws = [("test", test), ("validation", validation), ("train", train)]
    if further is not None:
        draws.append((FURTHER, further))
    if transfer is not None:
        draws.append((TRANSFER, transfer))
    for (split, draw), (other_split, other) in combinations(draws, 2):
        _check_apart((split, draw.pool), (other_split, other.pool))
    taken: set[str] = set()
    tasks: list[Task] = []
    for split, draw in draws:
        chosen = _choose(split, draw, taken)
        taken.update(question.question_id for question in chosen)
        tasks += [_task(domain, split, question) for question in chosen]
    check_leaks(tasks)
    return tuple(tasks)


def _check_apart(first: tuple[str, Questions], second: tuple[str, Questions]) -> None:
    (split, pool), (other_split, other_pool) = first, second
    if pool == other_pool:
        return
    texts = {question.fingerprint: question.question_id for question in pool.items}
    ids = set(texts.values())
    for question in other_pool.items:
        if (same := texts.get(question.fingerprint)) is not None:
            raise LeakError(
                f"question {question.question_id!r} of {other_pool.source} (split {other_split!r}) "
                f"also stands in {pool.source} (split {split!r}) as {same!r}; expected pools "
                f"without a common question: take those of one out of the other (without)"
            )
        if question.question_id in ids:
            raise SchemaError(
                f"id {question.question_id!r}: stands for different questions in {pool.source} "
                f"(split {split!r}) and {other_pool.source} (split {other_split!r}); expected "
                f"unique ids, or files of different names"
            )


def _choose(split: str, draw: Draw, taken: Collection[str]) -> list[TextQuestion]:
    order = list(draw.pool.items)
    if split != "test" or draw.problems != len(order):
        random.Random(draw.seed).shuffle(order)
    left = [question for question in order if question.question_id not in taken]
    if not 1 <= draw.problems <= len(left):
        raise ParamsError(
            f"{split}.problems: given {draw.problems}, expected 1 to {len(left)}, which is what "
            f"{draw.pool.source} has left for this split"
        )
    return left[: draw.problems]


def _task(domain: Domain, split: str, question: TextQuestion) -> Task:
    problem = domain.read(question.text, problem_id=question.question_id)
    known = {"level": question.level, "subject": question.subject}
    facts = json.dumps({name: value for name, value in known.items() if value is not None})
    truth = Truth(question.question_id, question.answer, facts)
    return Task(split, problem, truth, question.fingerprint)


def _questions(path: Path, *, name: str, known: BenchmarkSource | None) -> Questions:
    allowed = known.without_gold if known else 0
    records = lacking = 0
    places: dict[str, str] = {}
    found: dict[str, TextQuestion] = {}
    for record in question_records(path):
        records += 1
        question = _question(record, name=name, known=known)
        if question is None:
            lacking += 1
            if lacking > allowed:
                raise _refused(
                    record, r"an answer, or a solution that ends in #### or has a \boxed"
                )
            continue
        if (place := places.setdefault(question.question_id, record.place)) != record.place:
            raise SchemaError(
                f"{record.place}: given the id {question.question_id!r}, which also stands at "
                f"{place}; expected unique ids"
            )
        same = found.setdefault(question.fingerprint, question)
        graded = None if known else compare_quickly(same.answer, question.answer)
        if graded is not None and graded.status == WRONG:
            raise SchemaError(
                f"{record.place}: given {question.answer[:SHOWN]!r} as the answer to a question "
                f"that has {same.answer[:SHOWN]!r} at {places[same.question_id]}; expected one "
                f"answer (questions that differ in case and spacing count as one)"
            )
    if not records or (known and records != known.records):
        expected = f"the {known.records} of {name}" if known else "at least one"
        raise SchemaError(f"{path}: given {records} records, expected {expected}")
    return Questions(name if known else str(path), tuple(found.values()))


def _question(
    record: QuestionRecord, *, name: str, known: BenchmarkSource | None
) -> TextQuestion | None:
    """The record's question; None when it states no gold."""
    text = record.text(*QUESTION_FIELDS)
    if text is None:
        raise _refused(record, f"a text in {' or '.join(QUESTION_FIELDS)}")
    gold = _gold(record)
    if gold is None:
        return None
    return TextQuestion(
        question_id=_identity(record, name=name, known=known),
        text=record.readable(text, what="a question", most=MAX_QUESTION),
        answer=record.readable(gold, what="a gold", most=MAX_ANSWER),
        level=_level(record),
        subject=record.name("a subject", *SUBJECT_FIELDS),
        written=record.text(*ANSWER_FIELDS, SOLUTION_FIELD) or "",
    )


def _identity(record: QuestionRecord, *, name: str, known: BenchmarkSource | None) -> str:
    fields = ID_FIELDS if known is None else () if known.ids is None else (known.ids,)
    found = record.name("an id", *fields)
    if found is None and known is not None and known.ids is not None:
        raise _refused(record, f"an id in {known.ids}")
    return found or f"{name}-{record.number:05d}"


def _level(record: QuestionRecord) -> str | None:
    """``5`` for 5 and for ``Level 5``; MATH writes ``Level ?`` where nobody knows."""
    level = (record.name("a level", "level") or "").removeprefix("Level ").strip()
    return level if level not in ("", "?") else None


def _gold(record: QuestionRecord) -> str | None:
    """The gold of the first field that states one."""
    for name in (*ANSWER_FIELDS, SOLUTION_FIELD):
        text = record.text(name)
        if text is not None and (gold := _stated(text, whole=name != SOLUTION_FIELD)):
            return gold
    return None


def _stated(text: str, *, whole: bool) -> str | None:
    """What the last line gives after ``####``, else the last box, else with ``whole`` the text."""
    last_line = text.rpartition("\n")[2]
    if last_line.startswith("####"):
        gold = last_line.removeprefix("####").strip()
        return (gold.replace(",", "") if _THOUSANDS.fullmatch(gold) else gold) or None
    if "\\boxed" in text:
        return extract_boxed(text) or None
    return text if whole and "####" not in text else None


def _refused(record: QuestionRecord, expected: str) -> SchemaError:
    given = {
        name: value[:SHOWN] if isinstance(value, str) else type(value).__name__
        for name, value in record.fields.items()
        if name in FIELDS
    }
    return SchemaError(f"{record.place}: given {given}, expected {expected}")


def _downloaded(name: str) -> Path:
    known = KNOWN[name]
    try:
        path = hf_hub_download(
            known.repository, known.file, repo_type="dataset", revision=known.revision
        )
    except Exception as error:  # what the hub's transport raises differs between its versions
        reason = str(error).strip().partition("\n")[0]
        raise ArtifactError(
            f"{name}: the Hugging Face hub did not give {known.file} of the dataset "
            f"{known.repository} ({type(error).__name__}: {reason}); expected access to it, or "
            f"the path of a copy of that file in place of {name}"
        ) from error
    return Path(path)
