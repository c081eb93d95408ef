"""The few-shot prompts are right, and models are shown what a domain reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from selverify.data.grading import Grader
from selverify.domains.base import Domain, split_moves
from selverify.domains.countdown import Countdown
from selverify.domains.math_steps import MathSteps, TextStep
from selverify.domains.math_structured import OPERATORS, MathStructured
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError
from selverify.models.prompting import (
    NEXT_QUESTION,
    FewShot,
    Prompt,
    PromptData,
    Prompting,
    before_next_question,
    load_prompt,
    move_schema,
    plain,
    plain_text,
)
from selverify.search.gates import reject
from selverify.types import Move, State

CODECS: dict[str, Domain] = {"math_steps": MathSteps(), "math_structured": MathStructured()}
EXAMPLES = [
    pytest.param(domain, example, id=f"{name}-{number}")
    for name, domain in CODECS.items()
    for number, example in enumerate(load_prompt(name).examples)
]
STRUCTURED = CODECS["math_structured"]
COUNTDOWN = Countdown()
SCHEMA = move_schema(STRUCTURED)
SECONDS, WORKERS = 10.0, 1

over_examples = pytest.mark.parametrize(("domain", "example"), EXAMPLES)


def walk(domain: Domain, example: FewShot) -> State:
    """The state after the example's steps, none of which a gate refuses."""
    state = domain.initial_state(domain.read(example.question, problem_id="p"), budget=1)
    for text in example.steps:
        move = domain.parse(text)
        assert reject(domain, state, candidate=move) is None and isinstance(move, Move)
        assert move.text == text
        assert not domain.is_final(state)
        state = domain.apply(state, move)
    return state


@over_examples
def test_an_example_passes_every_gate_and_ends_with_its_answer(
    domain: Domain, example: FewShot
) -> None:
    """Each step's text is canonical; the last step, and no other, answers."""
    assert domain.answer(walk(domain, example)) == example.answer


@over_examples
def test_an_example_is_split_into_its_own_steps(domain: Domain, example: FewShot) -> None:
    """What stands between two moves stands in none of them."""
    shown = domain.end_of_move.join(example.steps)
    assert tuple(split_moves(shown, domain.end_of_move)) == example.steps


@over_examples
def test_the_arithmetic_of_an_example_is_written_out(domain: Domain, example: FewShot) -> None:
    """Every solution has claims that the gates can read, and all of them hold."""
    claims = [
        claim
        for move in walk(domain, example).derivation
        if isinstance(move.args, TextStep)
        for claim in move.args.claims
    ]
    assert all(holds for _, _, holds in claims)
    assert claims or any(move.op == "compute" for move in walk(domain, example).derivation)


def test_the_answers_of_both_codecs_grade_correct_against_each_other() -> None:
    """One question, one answer: as stated, and as derived in the other codec."""
    steps, structured = (load_prompt(name).examples for name in CODECS)
    assert [one.question for one in steps] == [one.question for one in structured]
    pairs = [
        (gold.answer, CODECS[name].answer(walk(CODECS[name], example)))
        for name, examples, golds in (
            ("math_structured", structured, steps),
            ("math_steps", steps, structured),
        )
        for example, gold in zip(examples, golds, strict=True)
    ]
    with Grader(SECONDS, WORKERS) as grader:
        assert all(grade.correct for grade in grader.grade_many(pairs))


def test_an_example_with_a_wrong_number_would_be_refused() -> None:
    """The checks above see a mistake: 12 - 3 is not 8."""
    for name, domain in CODECS.items():
        example = load_prompt(name).examples[0]
        wrong = tuple(
            step.replace("12 - 3 = 9", "12 - 3 = 8").replace('"value": "9"', '"value": "8"')
            for step in example.steps
        )
        with pytest.raises(AssertionError):
            walk(domain, example.model_copy(update={"steps": wrong}))


def test_the_structured_prompt_tells_and_shows_every_operator() -> None:
    """With the names of all arguments and of all their fixed values."""
    data = load_prompt("math_structured")
    told = "\n".join(data.system)
    shown = {json.loads(step)["op"] for example in data.examples for step in example.steps}
    assert shown == OPERATORS.keys()
    for op, arguments in OPERATORS.items():
        (described,) = [text for text in data.system if text.startswith(f"{op}: ")]
        assert described.startswith(f"{op}: {', '.join(arguments.model_fields)}. ")
    for value in OPERATORS["require"].model_json_schema()["properties"]["condition"]["enum"]:
        assert value in told


def test_the_prompts_are_package_data() -> None:
    """Each is read under its own name; no other name leads anywhere."""
    assert all(load_prompt(name).name == name for name in CODECS)
    for name in ("math", "../prompts/math_steps"):
        with pytest.raises(ParamsError, match=r"expected one of math_steps, math_structured$"):
            load_prompt(name)


DATA = PromptData(
    name="p",
    version=1,
    system=("Solve it.", "Box it."),
    examples=(FewShot(question="1 + 1?", answer="2", steps=("1 + 1 = 2", r"\boxed{2}")),),
)


def test_a_state_is_shown_as_a_chat_that_the_model_continues() -> None:
    """System text, examples, problem; the steps so far are the beginning of the answer."""
    domain = MathSteps()
    prompting = Prompting(DATA, end_of_move=domain.end_of_move)
    state = domain.initial_state(domain.read("2 + 2?", problem_id="p"), budget=1)
    shown = (
        ("system", "Solve it.\nBox it."),
        ("user", "1 + 1?"),
        ("assistant", "1 + 1 = 2\n\n\\boxed{2}"),
        ("user", "2 + 2?"),
    )
    assert prompting(state) == Prompt(shown, "")
    for text in ("First step.", "2 + 2 = 4"):
        move = domain.parse(text)
        assert isinstance(move, Move)
        state = domain.apply(state, move)
    assert prompting(state) == Prompt(shown, "First step.\n\n2 + 2 = 4\n\n")


def test_a_structured_state_begins_with_its_lines() -> None:
    """Byte for byte as the examples spell them, so a cached beginning is met again."""
    example = load_prompt("math_structured").examples[2]
    state = walk(STRUCTURED, example)
    prompting = Prompting(load_prompt("math_structured"), end_of_move=STRUCTURED.end_of_move)
    assert prompting(state).begun == "".join(f"{step}\n" for step in example.steps)
    assert ("assistant", "\n".join(example.steps)) in prompting(state).messages


def test_a_plain_prompt_is_the_state_and_no_more() -> None:
    """The domain's own text; white space that stands between two moves comes before the next."""
    state = STRUCTURED.initial_state(STRUCTURED.read("2 + 2?", problem_id="p"), budget=1)
    assert plain(STRUCTURED)(state) == Prompt((), "2 + 2?\n")
    hand = COUNTDOWN.initial_state(COUNTDOWN.read("use 4 6 to make 24 .", problem_id="p"), budget=1)
    assert plain(COUNTDOWN)(hand) == Prompt((), "use 4 6 to make 24 .")


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("4.\n\nUser: Why?\n\nUser: No.", "4.\n\n"),
        ("4.\n \tUser: Why?", "4.\n"),
        (" User: Why?", ""),
        ("A User: user:\nA user\nUsers: 2", "A User: user:\nA user\nUsers: 2"),
    ],
)
def test_the_next_question_begins_a_line_of_the_plain_layout(text: str, before: str) -> None:
    """With the mark that the layout gives to questions, which servers are told to stop at."""
    assert before_next_question(text) == before
    shown = plain_text(Prompt((("user", "Why?"), ("assistant", "So.")), ""))
    assert NEXT_QUESTION in f"\n{shown}" and before_next_question(shown) == ""


def test_every_change_of_a_prompt_changes_its_identity() -> None:
    """The name, the version, the system's text, an example, and the end of a move."""
    example = DATA.examples[0]
    others = [
        {"name": "q"},
        {"version": 2},
        {"system": ("Solve it.\nBox it.",)},
        {"system": ("Solve it.", "Box it!")},
        {"examples": ()},
        {"examples": (example, example)},
        {"examples": (example.model_copy(update={"steps": (r"1 + 1 = \boxed{2}",)}),)},
    ]
    found = [DATA, *(DATA.model_copy(update=other) for other in others)]
    identities = {Prompting(data, end_of_move="\n").identity() for data in found}
    identities.add(Prompting(DATA, end_of_move="\n\n").identity())
    assert len(identities) == len(found) + 1
    again = PromptData.model_validate_json(DATA.model_dump_json())
    assert Prompting(again, end_of_move="\n").identity() in identities


@pytest.mark.parametrize(
    "domain", [*CODECS.values(), COUNTDOWN, WordProblems()], ids=lambda one: one.name
)
def test_a_schema_is_whole_and_names_every_operator(domain: Domain) -> None:
    """No reference, no title, and nothing beside what an operator takes."""
    schema = move_schema(domain)
    Draft202012Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema) and '"title"' not in json.dumps(schema)
    assert [one["properties"]["op"]["const"] for one in schema["anyOf"]] == [*domain.operators]
    for one, arguments in zip(schema["anyOf"], domain.operators.values(), strict=True):
        assert (
            one["additionalProperties"]
            is one["properties"]["args"]["additionalProperties"]
            is False
        )
        assert one["properties"]["args"]["required"] == [*arguments.model_fields]


SHOWN = [
    json.loads(step)
    for example in load_prompt("math_structured").examples
    for step in example.steps
]
ODD = st.sampled_from((1, True, None, "", "n", "even", "<", [], [1], [0], ["1"], {}, "x" * 301))


@given(st.sampled_from(SHOWN), st.data())
@settings(deadline=None)
def test_the_schema_allows_exactly_what_is_parsed(
    shown: dict[str, Any], data: st.DataObject
) -> None:
    """Moves of the examples, and those with a key dropped, added or given another value."""
    assert Draft202012Validator(SCHEMA).is_valid(shown)
    changed = json.loads(json.dumps(shown))
    for part in (changed["args"], changed):
        key = data.draw(st.sampled_from((*part, "more")))
        change = data.draw(st.sampled_from(("keep", "drop", "set")))
        if change == "drop":
            part.pop(key, None)
        elif change == "set":
            part[key] = data.draw(ODD)
    valid = Draft202012Validator(SCHEMA).is_valid(changed)
    assert isinstance(STRUCTURED.parse(json.dumps(changed)), Move) == valid
