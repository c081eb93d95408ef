"""What is asked of a server, and what is made of its replies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import json_values
from stand_in import NOWHERE

from selverify.domains.math_steps import MathSteps
from selverify.domains.word_problems import WordProblems
from selverify.errors import ParamsError, ProtocolError, Refusal
from selverify.models.prompting import Prompt, plain_text
from selverify.params import Sampling, Server
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.types import Problem, Sample, State

client = pytest.importorskip("selverify.models.generators.client")
served = pytest.importorskip("selverify.models.generators.served")
Takes = served._Takes

Body = Mapping[str, Any]
Reply = dict[str, Any]
WORDS, STEPS = WordProblems(), MathSteps()
SCHEMA = {"type": "object"}
SAMPLING = Sampling(
    temperature=0.7, max_move_tokens=12, max_solution_tokens=96, max_moves=9, batch_rows=1
)


class Scripted(client.Client):
    """A client whose server is a function; a reply that the caller calls faulty stays faulty."""

    def __init__(self, answer: Callable[[Body], Any], **changed: object) -> None:
        super().__init__(Server.model_validate({**NOWHERE, **changed}))
        self.answer = answer
        self.asked: list[tuple[str, Body]] = []

    def ask_each(self, path: str, bodies: Sequence[Body], *, fault=None) -> list[Any]:
        replies = []
        for body in bodies:
            self.asked.append((path, body))
            reply = self.answer(body)
            if isinstance(reply, dict) and fault is not None and (wrong := fault(reply)):
                raise ProtocolError(wrong)
            replies.append(reply)
        return replies

    def used(self, name: str) -> list[Any]:
        """What each body so far said of ``name``."""
        return [body.get(name) for _, body in self.asked]


def choices(*texts: str | None, chat: bool = False, **told: object) -> Reply:
    return {
        "choices": [
            {"index": index, "finish_reason": "stop", **told}
            | ({"message": {"content": text}} if chat else {"text": text})
            for index, text in enumerate(texts)
        ]
    }


def writer(body: Body) -> Reply:
    """Texts that follow from the body's prompt and seed, and differ by choice."""
    chance = random.Random(f"{body.get('prompt')} {body['seed']}")
    return choices(*(f"apples {chance.randrange(10**6)}" for _ in range(body.get("n", 1))))


def refused(status: int = 400, said: str = "unknown field") -> Any:
    return Refusal(said, status=status)


def model(asked: client.Client, **changed: Any) -> Any:
    told = {
        "end_of_move": ";",
        "prompting": lambda state: Prompt((), WORDS.serialise(state)),
        "prompting_id": "text",
        "sampling": SAMPLING,
        "seed": 3,
        "api": "completions",
    }
    return served.ServedModel(asked, **{**told, **changed})


def state(name: str = "p") -> State:
    text = "of apples 7 are there . find apples ?"
    problem = Problem(name, "word_problems", text, "find apples ?")
    return WORDS.initial_state(problem, budget=9)


def first(said: Reply, *, whole: bool = False, **changed: Any) -> Sample:
    """The sample that a reply holds: one move, or a whole solution."""
    asked = model(Scripted(lambda body: said), **changed)
    if whole:
        (((sample,)),) = asked.complete([CompleteItem(state(), 0, 1)])
    else:
        (((sample,)),) = asked.propose([ProposeItem(state(), 0, 1)])
    return sample


def test_moves_and_solutions_are_asked_for_up_to_their_end() -> None:
    """As much as the settings say, and nothing that a server need not know."""
    asked = Scripted(writer)
    proposer = model(asked)
    proposer.propose([ProposeItem(state(), 4, 2)])
    proposer.complete([CompleteItem(state(), 0, 1, temperature=0.0), CompleteItem(state(), 0, 1)])
    assert [path for path, _ in asked.asked] == ["/completions"] * 3
    assert all(0 <= seed < 2**31 for seed in asked.used("seed"))
    text = {"prompt": state().problem.text}
    solution = {**text, "max_tokens": 96}
    assert [{k: v for k, v in body.items() if k != "seed"} for _, body in asked.asked] == [
        {**text, "max_tokens": 12, "temperature": 0.7, "n": 2, "stop": [";"]},
        {**solution, "temperature": 0.0},
        {**solution, "temperature": 0.7},
    ]


CHAT = (("system", "Be brief."), ("user", "Go."))


@pytest.mark.parametrize(
    ("prompt", "roles", "rest"),
    [
        (
            Prompt(CHAT, "Step"),
            {"system": "Be brief.", "user": "Go.", "assistant": "Step"},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
        (Prompt(CHAT[1:], ""), {"user": "Go."}, {}),
        (Prompt((), "Go."), {"user": "Go."}, {}),
    ],
)
def test_a_chat_continues_what_was_begun(prompt: Prompt, roles: Reply, rest: Reply) -> None:
    """The beginning of the answer is its last message."""
    asked = Scripted(lambda body: choices("apples 7", chat=True))
    model(asked, api="chat", prompting=lambda state: prompt).propose([ProposeItem(state(), 0, 1)])
    ((path, body),) = asked.asked
    assert path == "/chat/completions"
    messages = [{"role": role, "content": text} for role, text in roles.items()]
    usual = {"max_tokens", "temperature", "seed", "stop"}
    found = {name: told for name, told in body.items() if name not in usual}
    assert found == {"messages": messages, **rest}


def test_messages_as_plain_text() -> None:
    """For a model that knows no chat; without messages the text is the prompt."""
    assert plain_text(Prompt(CHAT, "")) == "System: Be brief.\n\nUser: Go.\n\nAssistant:"
    assert plain_text(Prompt(CHAT, "Step\n\n")).endswith("\n\nAssistant: Step\n\n")
    assert plain_text(Prompt((), "Go. ")) == "Go. "


@pytest.mark.parametrize(
    ("said", "told", "text"),
    [
        (" apples  7", {}, "apples 7 ;"),
        ("apples 7 ;", {}, "apples 7 ;"),
        ("apples 7; pears 8 ;", {}, "apples 7 ;"),
        ("apples 7", {"finish_reason": "length"}, "apples 7"),
        ("apples 7 ; pears", {"finish_reason": "length"}, "apples 7 ;"),
        ("apples 7", {"finish_reason": None}, "apples 7 ;"),
        ("apples 7", {"stop_reason": None}, "apples 7"),
        ("apples 7", {"stop_reason": ";"}, "apples 7 ;"),
        ("apples 7", {"matched_stop": 2}, "apples 7"),
        ("", {}, ";"),
        ("a\ud800b", {}, "a?b ;"),
    ],
)
def test_a_move_ends_where_its_end_was_said(said: str, told: Reply, text: str) -> None:
    """Servers keep the stop string or leave it out; a move cut short gets none."""
    assert first(choices(said, **told)).text == text


@pytest.mark.parametrize(
    ("said", "step", "solution"),
    [
        ("5 * 25 = 125\n\nThe answer is 12", "5 * 25 = 125", "5 * 25 = 125"),
        ("The answer is 12", "", ""),
        ("\n\nThe answer is 12", "", ""),
        ("The answer is 12\n\n", "The answer is 12", "The answer is 12"),
        (r"It is $\boxed{\frac{1}{2}}$. In oth", r"It is $\boxed{\frac{1}{2}}$. In oth", None),
        (r"It is $\boxed{\frac{1}{2", "", ""),
        (r"It is \boxed 12", "", ""),
    ],
)
def test_what_the_limit_cut_off_is_no_step_and_no_answer(
    said: str, step: str, solution: str | None
) -> None:
    """125 may have been meant; an answer whose box is closed was said."""
    cut = choices(said, finish_reason="length")
    for whole, text in ((False, step), (True, step if solution is None else solution)):
        assert first(cut, whole=whole, end_of_move="\n\n").text == text
        assert first(choices(said), whole=whole, end_of_move="\n\n").text


def test_a_step_that_was_cut_off_is_not_asked_for_again() -> None:
    """As one of white space alone would be."""
    asked = Scripted(lambda body: choices("So", finish_reason="length", stop_reason=None))
    model(asked, end_of_move="\n\n").propose([ProposeItem(state(), 0, 1)])
    assert len(asked.asked) == 1


INVENTED = "So 4.\n\nUser: What is 10 + 7?\n\nAssistant: \\boxed{17}."


@pytest.mark.parametrize(
    ("said", "reason", "text"),
    [
        (INVENTED, "stop", "So 4."),
        (INVENTED, "length", "So 4."),
        (INVENTED.partition("\n\n")[2], "length", ""),
        ("So 4.\n User: What is 10 + 7?", "length", "So 4."),
        ("A User: is 4.", "stop", "A User: is 4."),
        ("A User: is 4", "length", ""),
    ],
)
def test_behind_examples_as_plain_text_the_next_question_ends_a_sample(
    said: str, reason: str, text: str
) -> None:
    """A base model goes on with one; what it says before is whole."""
    asked = Scripted(lambda body: choices(said, finish_reason=reason))
    proposer = model(asked, end_of_move="\n\n", few_shot=True)
    (((one,),), ((whole,),)) = (
        proposer.propose([ProposeItem(state(), 0, 1)]),
        proposer.complete([CompleteItem(state(), 0, 1)]),
    )
    assert one.text == whole.text == text
    assert asked.used("stop") == [["\n\n"], ["\nUser:"]]


@pytest.mark.parametrize(
    ("said", "text"),
    [("a\nb\n\nc", "a\nb"), ("\n\na\n\nb", "a"), (" a ", "a"), ("", ""), ("\n\n", "")],
)
def test_a_step_ends_at_an_empty_line(said: str, text: str) -> None:
    """White space before it is none of it."""
    assert first(choices(said), end_of_move=STEPS.end_of_move).text == text


def test_the_moves_of_a_solution_are_set_apart() -> None:
    """By spaces where a word ends them; a text of steps stays as it is."""
    words = choices(" apples 7; answer  7;")
    assert first(words, whole=True).text == "apples 7 ; answer 7 ;"
    assert first(choices("\na\n\nb\n"), whole=True, end_of_move="\n\n").text == "a\n\nb"


def test_no_text_is_an_empty_one_where_the_server_says_why() -> None:
    """Or that the message is whole: reasoning alone, or a refusal; a null alone is no answer."""
    for reason in ("length", "content_filter", "stop"):
        said = choices(None, chat=True, finish_reason=reason)
        assert first(said, whole=True, api="chat").text == ""
    for said in (choices(None, chat=True, finish_reason=None), choices(None)):
        with pytest.raises(ProtocolError, match="a choice without a text"):
            first(said, whole=True, api="chat")


def test_messages_without_content_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each is the candidate's failure, and its neighbours keep their texts."""
    proposer = model(Scripted(lambda body: choices("1 ;", None, chat=True)), api="chat")
    for _ in range(2):
        (samples,) = proposer.complete([CompleteItem(state(), 0, 2)])
        assert [sample.text for sample in samples] == ["1 ;", ""]
    assert [one.getMessage() for one in caplog.records] == [f"generator small: {served._SILENT}"]


def test_samples_follow_from_run_state_and_index_alone() -> None:
    """Whatever stands beside an item, and however samples are asked for one by one."""
    items = [ProposeItem(state(name), start, 3) for name in "pq" for start in (0, 2)]
    together = model(Scripted(writer)).propose(items)
    assert [model(Scripted(writer)).propose([item])[0] for item in items] == list(together)
    other_run = model(Scripted(writer), seed=4).propose(items[:1])
    assert len({*together, *other_run}) == 5
    apart = model(Scripted(single))
    ((one, two),) = apart.propose([ProposeItem(state(), 0, 2)])
    assert apart.propose([ProposeItem(state(), 1, 1), ProposeItem(state(), 0, 1)]) == (
        (two,),
        (one,),
    )
    assert one != two


def single(body: Body) -> Any:
    """A server that takes no ``n``."""
    return refused() if "n" in body else writer(body)


@pytest.mark.parametrize("heedless", [False, True])
def test_a_server_without_n_is_asked_singly_from_then_on(heedless: bool) -> None:
    """One that refuses it is found out with one item; of one that pays no heed, its one choice
    counts, for it was drawn under the first sample's seed."""
    items = [ProposeItem(state(name), 0, 3) for name in "pq"]
    asked = Scripted((lambda body: writer({**body, "n": 1})) if heedless else single)
    proposer = model(asked)
    replies = proposer.propose(items)
    assert asked.used("n") == ([3, 3] if heedless else [3, None]) + [None] * 5
    assert proposer._takes == Takes(1, capped=True, schema=None)
    assert replies == model(Scripted(single)).propose(items)


def at_most(most: int) -> Callable[[Body], Any]:
    """A server that takes an ``n`` up to ``most``, such as llama.cpp's with so many slots."""
    return lambda body: refused() if body.get("n", 1) > most else writer(body)


@pytest.mark.parametrize(
    ("counts", "used", "parts"),
    [
        ((2, 4, 8), [2, 4, 8, 4, 4], [4, 4]),
        ((8, 4, 2, 8), [8, 4, 4, 4, 2, 4, 4], [4, 4]),
        ((2, 6, 6), [2, 6, 3, 3, 3, 3], [3, 3]),
        ((1, 5), [None, 5, 2, 2, None], [2, 2, 1]),
    ],
)
def test_a_request_for_more_than_a_server_takes_is_split(
    counts: Sequence[int], used: list[int | None], parts: list[int]
) -> None:
    """Whichever was asked for first; each part is asked for under the seed of its first sample."""
    asked = Scripted(at_most(4))
    proposer = model(asked)
    for count in counts:
        (samples,) = proposer.complete([CompleteItem(state(), 0, count)])
    assert asked.used("n") == used
    starts = accumulate(parts, initial=0)
    items = [CompleteItem(state(), *one) for one in zip(starts, parts, strict=False)]
    assert samples == sum(model(Scripted(writer)).complete(items), start=())


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_what_is_refused_of_one_item_alone_is_asked_for_sample_by_sample(
    schema: Reply | None,
) -> None:
    """It teaches nothing; a sample that is refused by itself is an error."""

    def picky(body: Body) -> Any:
        odd = body["prompt"] in told.values()
        return refused() if odd and body.get("n", 1) > most else obedient(body)

    told = {"q": "odd"}
    asked = Scripted(picky)
    proposer = model(
        asked,
        schema=schema,
        prompting=lambda state: Prompt((), told.get(state.problem.problem_id, "plain")),
    )
    most = 1
    items = [ProposeItem(state(name), 0, 2) for name in "pqr"]
    assert all(sample.text for samples in proposer.propose(items) for sample in samples)
    assert asked.used("n") == [2, 2, 2, None, None]
    assert proposer._takes.most == 2 and not proposer._takes.capped
    most = 0
    with pytest.raises(Refusal):
        proposer.propose(items)
    assert asked.used("n")[5:] == [2, 2, 2, None]


def test_lost_choices_are_asked_for_again() -> None:
    """Once with the same body, which a server that lost them answers whole."""
    counts = iter([2, 1, 2])
    asked = Scripted(lambda body: writer({**body, "n": next(counts)}))
    proposer = model(asked)
    items = [ProposeItem(state(name), 0, 2) for name in "pq"]
    assert proposer.propose(items) == model(Scripted(writer)).propose(items)
    assert asked.used("n") == [2, 2, 2] and next(counts, None) is None
    assert proposer._takes == Takes(2, capped=False, schema=None)


def test_a_server_that_takes_n_is_asked_with_it_after_it_lost_some() -> None:
    """What is missing after two tries is asked for alone, under its own seed."""
    counts = iter([4, 3, 3, 1, 4])
    asked = Scripted(lambda body: writer({**body, "n": next(counts)}))
    proposer = model(asked)
    replies = [proposer.propose([ProposeItem(state(name), 0, 4)])[0] for name in "pqr"]
    assert asked.used("n") == [4, 4, 4, None, 4] and not proposer._takes.capped
    assert replies[1][3] == model(Scripted(writer)).propose([ProposeItem(state("q"), 3, 1)])[0][0]


def test_one_sample_says_nothing_about_n() -> None:
    """It is found out when the first item asks for more."""
    asked = Scripted(writer)
    proposer = model(asked)
    proposer.propose([ProposeItem(state(), 0, 1)])
    assert asked.used("n") == [None] and proposer._takes == Takes(1, capped=False, schema=None)
    proposer.complete([CompleteItem(state(), 0, 2)])
    assert proposer._takes.most == 2


def obedient(body: Body) -> Any:
    """A server that knows schemas."""
    texts = ['\n{"op": "a;b"} '] * body.get("n", 1)
    return choices(*texts) if "response_format" in body else writer(body)


def test_a_schema_goes_with_moves_alone() -> None:
    """Under it the move is the object: no stop string cuts it, nothing is added."""
    asked = Scripted(obedient)
    proposer = model(asked, schema=SCHEMA)
    ((first, _),) = proposer.propose([ProposeItem(state(), 0, 2)])
    proposer.complete([CompleteItem(state(), 0, 2)])
    assert first.text == '{"op": "a;b"}' and asked.used("stop") == [None, None]
    form = {"name": "move", "schema": SCHEMA, "strict": True}
    assert asked.used("response_format") == [{"type": "json_schema", "json_schema": form}, None]
    assert proposer._takes == Takes(2, capped=False, schema=True)


@pytest.mark.parametrize("heedless", [False, True])
def test_without_schemas_moves_are_asked_for_as_text(heedless: bool) -> None:
    """Also where the server takes the field and pays no heed to it; the gates do the rest."""
    items = [ProposeItem(state(name), 0, 2) for name in "pq"]
    asked = Scripted(
        lambda body: writer(body) if heedless or "response_format" not in body else refused()
    )
    proposer = model(asked, schema=SCHEMA)
    assert proposer.propose(items) == model(Scripted(writer)).propose(items)
    assert proposer._takes == Takes(2, capped=False, schema=False)
    assert [form is not None for form in asked.used("response_format")] == [True, False, False]


def test_the_first_text_tells_whether_a_schema_is_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No text leaves it open; other text, cut off or not, turns it off, which is said once."""
    told = [("", "length"), ("", "stop"), ('{"op": 1', "length")]
    said = iter(told)

    def answer(body: Body) -> Reply:
        text, reason = next(said)
        return choices(text, finish_reason=reason)

    asked = Scripted(answer)
    proposer = model(asked, schema=SCHEMA)
    for count in range(3):
        assert proposer._takes.schema is None
        proposer.propose([ProposeItem(state(str(count)), 0, 1)])
    assert proposer._takes.schema is True and None not in asked.used("response_format")
    assert not caplog.records
    proposer = model(Scripted(writer), schema=SCHEMA)
    proposer.propose([ProposeItem(state(name), 0, 1) for name in "pq"])
    assert [one.getMessage() for one in caplog.records] == [f"generator small: {served._NO_SCHEMA}"]
    proposer = model(Scripted(lambda body: choices("See", finish_reason="length")), schema=SCHEMA)
    proposer.propose([ProposeItem(state(), 0, 1)])
    assert proposer._takes.schema is False


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("schema", [True, False])
def test_what_a_server_takes_is_found_out_with_one_item(several: bool, schema: bool) -> None:
    """Whatever of the two it refuses."""

    def known(body: Body) -> Any:
        too_much = ("n" in body and not several) or ("response_format" in body and not schema)
        return refused(422) if too_much else obedient(body)

    asked = Scripted(known)
    proposer = model(asked, schema=SCHEMA)
    proposer.propose([ProposeItem(state(), 0, 2)])
    assert proposer._takes == Takes(2 if several else 1, capped=not several, schema=schema)
    found_out = len(asked.asked)
    proposer.propose([ProposeItem(state(name), 0, 2) for name in "qr"])
    assert len(asked.asked) - found_out == (2 if several else 4)


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_what_a_server_refuses_altogether_is_an_error(schema: Reply | None) -> None:
    """And teaches nothing about the server, nor does a failure."""
    for reply in (refused(400, "no such model"), {}):
        proposer = model(Scripted(lambda body, reply=reply: reply), schema=schema)
        with pytest.raises(ProtocolError, match=r"no such model|choices"):
            proposer.propose([ProposeItem(state(), 0, 2)])
        assert proposer._takes == Takes(1, capped=False, schema=None)


def test_a_prompt_that_is_too_long_gets_no_text(caplog: pytest.LogCaptureFixture) -> None:
    """It is the candidate that failed, so the items beside it have their samples."""

    def limited(body: Body) -> Any:
        long = "tale" in body["prompt"]
        return refused(400, "maximum context length is 9 tokens") if long else writer(body)

    told = {"p": "a tale", "q": "short", "r": "a tale"}
    asked = Scripted(limited)
    proposer = model(asked, prompting=lambda state: Prompt((), told[state.problem.problem_id]))
    first, second, third = proposer.propose([ProposeItem(state(name), 0, 2) for name in "pqr"])
    assert first == third == (Sample("", 0, 0.0),) * 2
    assert all(sample.text for sample in second)
    assert proposer._takes.most == 2
    assert [one.getMessage() for one in caplog.records] == [f"generator small: {served._NO_TEXT}"]


VLLM = "This model's maximum context length is 99 tokens. However, you requested 196 tokens"
NO_ROOM = [
    VLLM,
    "The input (99 tokens) is longer than the model's context length (64 tokens).",
    "Input length (99 tokens) exceeds the maximum allowed length (63 tokens).",
    "request (99 tokens) exceeds the available context size (64 tokens), try increasing it",
    "Input validation error: `inputs` must have less than 64 tokens. Given: 99",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64. Given: 99",
    "prompt is too long: 99 tokens > 64 maximum",
    "Trying to keep 99 tokens, however the model is loaded with context length of only 64",
    "Input is too long for requested model.",
]


@pytest.mark.parametrize("said", NO_ROOM)
def test_a_window_without_room_for_any_tokens_is_told_from_one_without_room_for_all(
    said: str,
) -> None:
    """By a second request for a few: only one that refuses these as well has a prompt too long."""
    items = [CompleteItem(state(), 0, 1)]
    asked = Scripted(lambda body: refused(400, said))
    assert model(asked).complete(items) == ((Sample("", 0, 0.0),),)
    assert asked.used("max_tokens") == [96, served._FEW_TOKENS]
    asked = Scripted(lambda body: refused(400, said) if body["max_tokens"] > 90 else writer(body))
    with pytest.raises(ParamsError, match="given max_solution_tokens 96, expected fewer or a long"):
        model(asked).complete(items)
    grown = STEPS.apply(STEPS.initial_state(state().problem, budget=9), STEPS.parse("So 7."))
    held = model(asked).complete([CompleteItem(grown, 0, 1)])  # it ends its candidate, not the run
    assert held == ((Sample("", 0, 0.0),),)
    longer = replace(state("q"), problem=replace(state("q").problem, text="of pears 7 are there ."))
    asked = Scripted(lambda body: refused(400, said) if "pears" in str(body) else writer(body))
    found = model(asked).complete([*items, CompleteItem(longer, 0, 1)])  # the limit is not wrong
    assert found[0][0].text and found[1] == ((Sample("", 0, 0.0)),)


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 96. This model supports at most 64 completion tokens",
        "n is too large: 64, at most 8",
        "extra fields not permitted: 'input': 'How much too long is the rope?'",
    ],
)
def test_other_words_of_length_are_refusals(said: str) -> None:
    """Of a setting, or of a problem's text that the server repeats."""
    with pytest.raises(Refusal, match=said[:20]):
        model(Scripted(lambda body: refused(422, said))).complete([CompleteItem(state(), 0, 1)])


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("begun", ["", "We have 1.\n\n"])
def test_a_model_that_says_white_space_first_is_asked_without_a_stop(api: str, begun: str) -> None:
    """A template may have taken it off what was begun. Each blank sample is asked for alone, under
    its own seed, whatever the others say; one that the model ended is blank."""

    def opening(body: Body) -> Reply:
        told = [("So 1.", "\n\n"), ("", "\n\n"), ("", None)] if "n" in body else [("", "\n\n")]
        if "stop" not in body:
            told = [(f"\n\nSo {body['seed']}.\n\nThen 3.", None)]
        texts = [
            {"text": text} if api == "completions" else {"message": {"content": text}}
            for text, _ in told
        ]
        return {
            "choices": [
                {"index": index, "finish_reason": "stop", "stop_reason": reason, **text}
                for index, (text, (_, reason)) in enumerate(zip(texts, told, strict=True))
            ]
        }

    asked = Scripted(opening)
    proposer = model(
        asked,
        api=api,
        end_of_move=STEPS.end_of_move,
        prompting=lambda state: Prompt((("user", "Go."),), begun),
    )
    (three,) = proposer.propose([ProposeItem(state(), 0, 3)])
    ((alone,),) = proposer.propose([ProposeItem(state(), 1, 1)])
    seed = served.sample_seed(3, state(), 1)
    assert [sample.text for sample in three] == ["So 1.", f"So {seed}.", ""]
    assert alone == three[1]
    assert asked.used("stop") == [["\n\n"], None, ["\n\n"], None]


@given(
    texts=st.lists(st.text("ab ", max_size=30), min_size=1, max_size=8),
    total=st.integers(0, 10**6),
)
def test_tokens_are_those_that_the_server_counted(texts: list[str], total: int) -> None:
    """Shared among the samples, none lost by rounding; of fewer than there are words, the words."""
    said = {**choices(*texts), "usage": {"completion_tokens": total}}
    (samples,) = model(Scripted(lambda body: said)).propose([ProposeItem(state(), 0, len(texts))])
    words = sum(len(sample.text.split()) for sample in samples)
    assert sum(sample.tokens for sample in samples) == max(total, words)
    assert all(sample.tokens >= 0 for sample in samples)


@pytest.mark.parametrize("count", [-1, True, 10**30, None, 1.5, "7"])
def test_without_a_count_tokens_are_words(count: object) -> None:
    """Also where the count is none."""
    for told in (None, {}, 7, {"completion_tokens": count}):
        said = {**choices("apples 7 ; answer 7 ;"), "usage": told}
        assert first(said, whole=True).tokens == 6


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("So 2", 1), ("So 2.", 2)])
def test_the_tokens_of_a_text_to_be_read_are_estimated(text: str, tokens: int) -> None:
    """Four characters a token, rounded up, without a request; the model's size is unknown."""
    proposer = model(Scripted(refused))
    assert proposer.tokens(text) == tokens
    assert proposer.parameters() is None


def test_the_identity_names_what_samples_follow_from() -> None:
    """Where the model is served, and how it is asked, are not among it."""
    usual = model(Scripted(writer)).identity()
    moved = Scripted(writer, url="http://127.0.0.2:9/v1", concurrency=9, max_retries=3)
    batched = SAMPLING.model_copy(update={"batch_rows": 7, "max_moves": 3})
    assert model(moved, sampling=batched).identity() == usual
    others = [
        model(Scripted(writer, model="other")),
        model(Scripted(writer), api="chat"),
        model(Scripted(writer), prompting_id="other"),
        model(Scripted(writer), sampling=SAMPLING.model_copy(update={"temperature": 0.8})),
        model(Scripted(writer), seed=4),
        model(Scripted(writer), schema=SCHEMA),
        model(Scripted(writer), schema={"type": "array"}),
        model(Scripted(writer), end_of_move="\n\n"),
        model(Scripted(writer), few_shot=True),
    ]
    assert len({usual, *(other.identity() for other in others)}) == 1 + len(others)


CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": json_values | st.integers(-1, 2),
        "text": json_values | st.text(),
        "message": json_values | st.fixed_dictionaries({"content": json_values}),
        "finish_reason": json_values | st.sampled_from(["stop", "length"]),
        "stop_reason": json_values,
        "matched_stop": json_values,
    },
)


@given(
    said=st.fixed_dictionaries(
        {},
        optional={
            "choices": json_values | st.lists(CHOICE | json_values, max_size=3),
            "usage": json_values,
        },
    ),
    end=st.sampled_from([";", "\n\n"]),
)
def test_any_reply_is_samples_or_one_clear_error(said: Reply, end: str) -> None:
    """And all samples can be stored."""
    proposer = model(Scripted(lambda body: said), end_of_move=end)
    try:
        (samples,) = proposer.propose([ProposeItem(state(), 0, 2)])
    except ProtocolError:
        return
    assert len(samples) == 2
    for sample in samples:
        assert sample.text.encode() is not None and 0 <= sample.tokens <= 2**31


def vectors(*indices: int, size: int = 2) -> Reply:
    return {"data": [{"index": one, "embedding": [float(one)] * size} for one in indices]}


def test_embeddings_stand_in_the_order_of_their_texts() -> None:
    """Whatever the order of a reply, and however many texts a request has."""

    def reversing(body: Body) -> Reply:
        numbers = [float(text) for text in body["input"]]
        data = [{"index": i, "embedding": [n, -n]} for i, n in enumerate(numbers)]
        return {"data": data[::-1]}

    asked = Scripted(reversing)
    embeddings = served.ServedEmbeddings(asked, batch=2, dimension=2)
    assert embeddings.embed_texts(["4", "5", "6"]) == [[4.0, -4.0], [5.0, -5.0], [6.0, -6.0]]
    assert asked.used("input") == [["4", "5"], ["6"]]
    assert embeddings.embed_texts([]) == []
    assert "127" not in embeddings.identity()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (vectors(0), "1 embeddings, expected 2"),
        (vectors(0, 0), "2 embeddings, expected 2"),
        (vectors(0, 2), "2 embeddings, expected 2"),
        (vectors(0, 1, size=3), "given 3 numbers a text, expected 2"),
        ({}, "data: Field required"),
        ({"data": [{"index": 0, "embedding": [float("nan"), 1.0]}]}, "finite number"),
        ({"data": [{"index": 0, "embedding": [10**400, 1.0]}]}, "embedding"),
        ({"data": [{"index": 0, "embedding": "AAAA"}]}, "valid list"),
    ],
)
def test_embeddings_of_another_form_are_an_error(said: Reply, wrong: str) -> None:
    """That says what is wrong."""
    embeddings = served.ServedEmbeddings(Scripted(lambda body: said), batch=2, dimension=2)
    with pytest.raises(ProtocolError, match=wrong):
        embeddings.embed_texts(["a", "b"])
