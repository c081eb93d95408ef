"""A generator, and embeddings, behind an OpenAI-compatible server.

Knows: how prompts become bodies, how choices become samples, and what a server takes. Does not
know: connections, calls, budgets, searches.

A sample's seed follows from (run seed, problem, trace, index) alone, and what is asked for one item
never depends on the items beside it. A request for ``n`` samples has one seed, that of its first;
where a server refuses it, smaller parts are requested, at last each sample alone, and each part has
the seed of its first. Whether a server honours seeds cannot be seen, so a second answer may differ
from the first: it is the reply cache that gives the same samples to whoever asks the same again.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, pairwise, product
from threading import RLock
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from selverify.domains.base import close_move
from selverify.errors import ParamsError, ProtocolError, Refusal
from selverify.models.generators.client import Client
from selverify.models.generators.sampling import Item, temperature_of
from selverify.models.no_room import is_no_room
from selverify.models.prompting import (
    NEXT_QUESTION,
    Prompt,
    before_next_question,
    finished_part,
    plain_text,
)
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import CompleteItem, ProposeItem
from selverify.types import Sample, State

Api = Literal["completions", "chat"]
_PATHS: Mapping[Api, str] = MappingProxyType(
    {"completions": "/completions", "chat": "/chat/completions"}
)
_SEEDS = (1 << 31) - 1
"""Servers take seeds as signed numbers of 32 bits."""
_CHARACTERS_A_TOKEN = 4
"""Of English text, roughly."""
_MOST_TOKENS = 1 << 31
"""A count beyond it is none."""
_FEW_TOKENS = 16
"""A problem that leaves no room for so many is too long by itself."""
_NO_SCHEMA = "the server takes no JSON schema, or does not follow it; moves are requested as text"
_SILENT = (
    "a message without content, such as a refusal or reasoning alone, is taken as an empty text"
)
_NO_TEXT = "a prompt that leaves no room in the server's context is given empty samples"
_log = logging.getLogger(__name__)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Message(_Strict):
    content: str | None = None


class _Choice(_Strict):
    """One choice of either API; ``stop_reason`` (vLLM) and ``matched_stop`` (SGLang) are extras."""

    index: int | None = None
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    stop_reason: Any = None
    matched_stop: Any = None

    @property
    def said(self) -> str | None:
        """The text; empty where the server gives a reason for having none."""
        said = self.text if self.message is None else self.message.content
        if said is None and (self.silent or self.finish_reason not in (None, "stop")):
            return ""
        # Half of a surrogate pair can be written in JSON, and in no file.
        return None if said is None else said.encode("utf-8", "replace").decode("utf-8")

    @property
    def silent(self) -> bool:
        """Whether it is a whole message without content."""
        message = self.message
        return message is not None and message.content is None and self.finish_reason == "stop"

    @property
    def blank(self) -> bool:
        """Whether it has a text of white space at most, that no filter took away."""
        said = self.text if self.message is None else self.message.content
        return said is not None and not said.strip() and self.finish_reason != "content_filter"

    def stopped_by(self, end: str) -> bool:
        """Whether ``end`` ended it, as far as the server tells."""
        for name in ("stop_reason", "matched_stop"):
            if name in self.model_fields_set:
                return bool(getattr(self, name) == end)
        return self.finish_reason != "length"


class _Choices(_Strict):
    choices: list[_Choice]
    usage: Any = None


class _Vector(_Strict):
    index: int
    embedding: list[FiniteFloat]


class _Vectors(_Strict):
    data: list[_Vector]


class _Takes(NamedTuple):
    """What a server was found to take.

    ``most``: the most samples in one request so far; no more are taken if it is ``capped``.
    ``schema``: constrained decoding; None is not known yet.
    """

    most: int
    capped: bool
    schema: bool | None


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for one item, or for a part of it: as many samples as there are seeds.

    ``steps``: of the solution so far, which the prompt ends with.
    """

    prompt: Prompt
    seeds: tuple[int, ...]
    limit: int
    temperature: float
    one_move: bool
    steps: int


class _Read(NamedTuple):
    """A sample as a reply holds it.

    ``blank``: it was stopped before it had begun.
    """

    sample: Sample
    blank: bool


_Answer = list[_Read] | Refusal


class ServedModel:
    """Satisfies ``Proposer``; see the module's text.

    A sample's ``logprob`` is 0: servers are not asked for it, and no file holds NaN.
    """

    def __init__(
        self,
        client: Client,
        *,
        end_of_move: str,
        prompting: Callable[[State], Prompt],
        prompting_id: str,
        sampling: Sampling,
        seed: int,
        api: Api,
        schema: Mapping[str, object] | None = None,
        few_shot: bool = False,
    ) -> None:
        """``prompting_id`` identifies what ``prompting`` shows beside the state.

        ``schema``: the JSON schema of one move, where moves are JSON objects. Under it a move ends
        with its object, so nothing is added; a server that knows no schemas is asked without.
        ``few_shot``: prompts are examples as plain text, so samples end before the next question.
        """
        self._client = client
        self._end = end_of_move
        self._prompting = prompting
        self._sampling = sampling
        self._seed = seed
        self._api = api
        self._schema = schema
        self._few_shot = few_shot
        self._takes = _Takes(1, capped=False, schema=None)
        self._finding_out = RLock()
        self._warned: set[str] = set()
        self._granted = 0  # the highest limit of tokens that a reply came under
        sampled = sampling.model_dump_json(exclude={"max_moves", "batch_rows"})
        drawn = None if schema is None else _digest(json.dumps(schema, sort_keys=True)).hex()
        self._identity = (
            f"{client.server.model} {api} {prompting_id} {sampled} {seed} {drawn} {end_of_move!r}"
            f"{' up to the next question' if few_shot else ''}"
        )

    def identity(self) -> str:
        """Of the model's name, the prompts, the sampling and the seed; not of where it is served.

        A server that takes another ``n`` gives other samples under it.
        """
        return self._identity

    def tokens(self, text: str) -> int:
        """An estimate, for servers are not asked for it: a token for each four characters begun."""
        return -(-len(text) // _CHARACTERS_A_TOKEN)

    def parameters(self) -> None:
        """Unknown: a server does not tell."""

    def propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        """Samples up to a move's end, which is put back.

        Raises:
            ProtocolError: the server refuses, or does not answer; see ``Client.ask``.
            ParamsError: the server's context has room for a prompt, not for so many tokens more.
        """
        limit = self._sampling.max_move_tokens
        return self._sample([self._request(item, limit, True) for item in items])

    def complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        """Samples up to the text's end; errors as in ``propose``."""
        limit = self._sampling.max_solution_tokens
        return self._sample([self._request(item, limit, False) for item in items])

    def _request(self, item: Item, limit: int, one_move: bool) -> _Request:
        temperature = temperature_of(item, self._sampling)
        indices = range(item.start, item.start + item.count)
        seeds = tuple(sample_seed(self._seed, item.state, index) for index in indices)
        prompt, steps = self._prompting(item.state), len(item.state.derivation)
        return _Request(prompt, seeds, limit, temperature, one_move, steps)

    def _sample(self, requests: Sequence[_Request]) -> tuple[tuple[Sample, ...], ...]:
        """Item by item until it is known what the server takes, then the others at once."""
        found: dict[int, list[Sample]] = {}
        for place, one in enumerate(requests):
            if len(self._variants(one)) > 1:
                with self._finding_out:
                    if len(self._variants(one)) > 1:  # another thread may have found out
                        found[place] = self._probe(one, self._variants(one))
        rest = [place for place in range(len(requests)) if place not in found]
        answers, _ = self._fetch([requests[place] for place in rest], self._takes)
        for place, answer in zip(rest, answers, strict=True):
            one = requests[place]
            if len(one.seeds) > 1 and _refused(answer):
                found[place] = self._probe(one, [self._takes._replace(most=1)])
            else:
                found[place] = self._settled(answer, one)
        return tuple(tuple(found[place]) for place in range(len(requests)))

    def _variants(self, one: _Request) -> list[_Takes]:
        """What the server may take of what this would use, the most first."""
        takes, count = self._takes, len(one.seeds)
        more = count > takes.most and not takes.capped
        schemas = _open(takes.schema, used=count > 0 and self._may_constrain(one))
        most = [count if more else max(1, min(count, takes.most))]
        while most[-1] > 1 and (more or len(schemas) > 1):
            most.append(most[-1] // 2)
        return [_Takes(size, takes.capped, schema) for size, schema in product(most, schemas)]

    def _probe(self, one: _Request, variants: Sequence[_Takes]) -> list[Sample]:
        """The samples; the first are asked for with less and less until the server takes it."""
        answers: list[_Answer] = []
        for variant in variants:
            head, *others = _parts(one, variant.most)
            answers, whole = self._fetch([head], variant)
            (answer,) = answers
            if _refused(answer):
                continue
            if isinstance(answer, Refusal):
                break
            schema = variant.schema
            if schema and self._takes.schema is None:
                # A server may also take a schema and pay no heed to it, which its first word shows.
                texts = [read.sample.text for read in answer if read.sample.text]
                if not all(text.startswith("{") for text in texts):
                    continue
                schema = True if texts else None
            elif schema is False and self._takes.schema is None:
                self._warn_once(_NO_SCHEMA)
            most, capped, _ = self._takes
            if len(one.seeds) > most and not capped:
                capped = variant.most < len(one.seeds) or not whole
                most = max(most, variant.most) if whole else most
            self._takes = _Takes(most, capped, schema)
            answers += self._fetch(others, self._takes)[0]
            break
        return self._settled(_joined(answers), one)

    def _settled(self, answer: _Answer, request: _Request) -> list[Sample]:
        """The samples; no text each where the steps so far, or the problem, leave no room.

        Raises:
            Refusal: the server refuses for another reason.
            ParamsError: a problem leaves room for a few tokens, not for as many as are wanted, and
                no other has had room for so many.
        """
        if not isinstance(answer, Refusal):
            return [read.sample for read in answer]
        if not is_no_room(answer):
            raise answer
        few = replace(request, seeds=request.seeds[:1], limit=min(request.limit, _FEW_TOKENS))
        least = _Takes(1, capped=True, schema=False)
        if few.limit < request.limit and not request.steps and self._granted < request.limit:
            (again,) = self._post([self._body(few, least)], [few], least)
            if not isinstance(again, Refusal):
                name = "max_move_tokens" if request.one_move else "max_solution_tokens"
                raise ParamsError(
                    f"sampling: given {name} {request.limit}, expected fewer or a longer context "
                    f"of {self._client.server.url}, which refuses them after a prompt that it "
                    f"answers with {few.limit}"
                ) from answer
        self._warn_once(_NO_TEXT)
        return [NOTHING] * len(request.seeds)

    def _warn_once(self, said: str) -> None:
        if said not in self._warned:
            self._warned.add(said)
            _log.warning("generator %s: %s", self._client.server.model, said)

    def _fetch(self, requests: Sequence[_Request], takes: _Takes) -> tuple[list[_Answer], bool]:
        """The answer to each request, asked for in parts of as many samples as are taken, and
        whether none had too few."""
        parts = [_parts(one, takes.most) for one in requests]
        answers, whole = self._fetch_parts([part for own in parts for part in own], takes)
        told = iter(answers)
        return [_joined([next(told) for _ in own]) for own in parts], whole

    def _fetch_parts(
        self, requests: Sequence[_Request], takes: _Takes
    ) -> tuple[list[_Answer], bool]:
        """The answer to each request, with all its samples, and whether none had too few: a server
        that loses some is asked once more, which tells it from one that knows no ``n``."""
        answers: list[_Answer] = [[] for _ in requests]
        for _ in range(2):
            short = _short(requests, answers)
            again = self._ask([requests[place] for place in short], takes)
            for place, answer in zip(short, again, strict=True):
                answers[place] = answer
        short = _short(requests, answers)
        alone = [
            (place, replace(requests[place], seeds=(seed,)))
            for place in short
            for seed in requests[place].seeds[len(_given(answers[place])) :]
        ]
        told = self._ask([one for _, one in alone], takes)
        for (place, _), answer in zip(alone, told, strict=True):
            answers[place] = _joined([answers[place], answer])
        return answers, not short

    def _ask(self, requests: Sequence[_Request], takes: _Takes) -> list[_Answer]:
        """The answer to each request, with one sample or more."""
        bodies = [self._body(one, takes) for one in requests]
        answers = self._post(bodies, requests, takes)
        # What is blank so far has not begun: a model may say white space first, which a chat
        # template took off the end of what was begun, and is stopped there.
        blank = [
            (place, index)
            for place, body in enumerate(bodies)
            if "stop" in body and requests[place].one_move and self._end.isspace()
            for index, read in enumerate(_given(answers[place]))
            if read.blank
        ]
        alone = [
            replace(requests[place], seeds=requests[place].seeds[index : index + 1])
            for place, index in blank
        ]
        unstopped = [_without_stop(self._body(one, takes)) for one in alone]
        for (place, index), again in zip(blank, self._post(unstopped, alone, takes), strict=True):
            if not isinstance(again, Refusal):
                _given(answers[place])[index] = again[0]
        return answers

    def _post(
        self, bodies: Sequence[Mapping[str, object]], requests: Sequence[_Request], takes: _Takes
    ) -> list[_Answer]:
        replies = self._client.ask_each(_PATHS[self._api], bodies, fault=_wrong_choices)
        return [
            reply if isinstance(reply, Refusal) else self._samples(reply, one, takes)
            for reply, one in zip(replies, requests, strict=True)
        ]

    def _body(self, one: _Request, takes: _Takes) -> dict[str, object]:
        chat = self._api == "chat"
        body: dict[str, object] = {
            **(_chat(one.prompt) if chat else {"prompt": plain_text(one.prompt)}),
            "max_tokens": one.limit,
            "temperature": one.temperature,
            "seed": one.seeds[0],
        }
        if len(one.seeds) > 1:
            body["n"] = len(one.seeds)
        if self._constrains(one, takes):
            named = {"name": "move", "schema": self._schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif one.one_move:
            body["stop"] = [self._end]
        elif self._few_shot:
            body["stop"] = [NEXT_QUESTION]
        return body

    def _may_constrain(self, one: _Request) -> bool:
        return one.one_move and self._schema is not None

    def _constrains(self, one: _Request, takes: _Takes) -> bool:
        return self._may_constrain(one) and takes.schema is not False

    def _samples(self, reply: Mapping[str, Any], one: _Request, takes: _Takes) -> list[_Read]:
        """At most a sample a seed. The surplus is dropped, but its tokens were generated."""
        read = _Choices.model_validate(reply)
        self._granted = max(self._granted, one.limit)
        choices = _distinct(read.choices)[: len(one.seeds)]
        if any(choice.silent for choice in choices):
            self._warn_once(_SILENT)
        texts = [self._text(choice, one, takes) for choice in choices]
        return [
            _Read(
                Sample(text, count, 0.0),
                blank=choice.blank and choice.stopped_by(self._end),
            )
            for choice, text, count in zip(choices, texts, _tokens(read.usage, texts), strict=True)
        ]

    def _text(self, choice: _Choice, asked: _Request, takes: _Takes) -> str:
        said, end = choice.said or "", self._end
        cut = choice.finish_reason == "length" and end.isspace()
        if self._few_shot:
            before = before_next_question(said)
            said, cut = before, cut and before == said
        if not asked.one_move and not end.isspace():
            return " ".join(said.replace(end, f" {end} ").split())
        if self._constrains(asked, takes):
            return said.strip()
        if cut:
            said = finished_part(said.lstrip(), end)
        if not asked.one_move:
            return said.strip()
        before, found, _ = said.lstrip().partition(end)
        return close_move(before, end) if found or choice.stopped_by(end) else before.strip()


class ServedEmbeddings:
    """Embeddings of texts, ``dimension`` numbers each, ``batch`` texts a request.

    Without a ``dimension`` that of the first one holds.
    """

    def __init__(self, client: Client, *, batch: int, dimension: int | None) -> None:
        self._client = client
        self._batch = batch
        self._dimension = dimension

    def identity(self) -> str:
        """Of the model's name; not of where it is served."""
        return f"{self._client.server.model} {self._dimension}"

    def embed_texts(self, texts: Sequence[str]) -> list[list[float]]:
        """One embedding a text, in their order.

        Raises:
            ProtocolError: the server refuses, does not answer, or gives another dimension.
        """
        starts = range(0, len(texts), self._batch)
        parts = [list(texts[start : start + self._batch]) for start in starts]
        vectors: list[list[float]] = []
        for size, some in groupby(parts, key=len):  # all but the last are of one size
            bodies = [{"input": part, "encoding_format": "float"} for part in some]
            fault = partial(_wrong_vectors, size=size)
            for reply in self._client.ask("/embeddings", bodies, fault=fault):
                data = _Vectors.model_validate(reply).data
                vectors += [one.embedding for one in sorted(data, key=lambda one: one.index)]
        for vector in vectors:
            self._dimension = self._dimension or len(vector)
            if len(vector) != self._dimension:
                raise ProtocolError(
                    f"{self._client.server.url}/embeddings: given {len(vector)} numbers a text, "
                    f"expected {self._dimension}"
                )
        return vectors


def _chat(prompt: Prompt) -> dict[str, object]:
    """Messages; what is begun is the last one, to be continued (vLLM, SGLang, llama.cpp)."""
    messages = [{"role": role, "content": text} for role, text in prompt.messages]
    if not messages:
        return {"messages": [{"role": "user", "content": prompt.begun}]}
    if not prompt.begun:
        return {"messages": messages}
    begun = {"role": "assistant", "content": prompt.begun}
    continued = {"continue_final_message": True, "add_generation_prompt": False}
    return {"messages": [*messages, begun], **continued}


def sample_seed(seed: int, state: State, index: int) -> int:
    """31 bits for the sample with this index at ``state``, for a run's ``seed``."""
    said = "\x1f".join(state.said)
    key = f"{seed}|{state.problem.problem_id}|{said}|{index}"
    return int.from_bytes(_digest(key)[:4], "little") & _SEEDS


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _open(known: bool | None, *, used: bool) -> tuple[bool | None, ...]:
    return (True, False) if used and known is None else (known,)


def _refused(answer: _Answer) -> bool:
    """Whether the server refused a request of which it may take a part: for want of room it would
    refuse each part."""
    return isinstance(answer, Refusal) and not is_no_room(answer)


def _parts(one: _Request, most: int) -> list[_Request]:
    """Requests of at most ``most`` samples each."""
    starts = range(0, len(one.seeds), most)
    return [replace(one, seeds=one.seeds[start : start + most]) for start in starts]


def _joined(answers: Sequence[_Answer]) -> _Answer:
    """The samples of all parts; the first refusal if there is one."""
    refused = next((one for one in answers if isinstance(one, Refusal)), None)
    return refused or [read for answer in answers for read in _given(answer)]


def _without_stop(body: Mapping[str, object]) -> dict[str, object]:
    return {name: told for name, told in body.items() if name != "stop"}


def _given(answer: _Answer) -> list[_Read]:
    return [] if isinstance(answer, Refusal) else answer


def _short(requests: Sequence[_Request], answers: Sequence[_Answer]) -> list[int]:
    """Places of the answers with fewer samples than asked for."""
    return [
        place
        for place, (one, answer) in enumerate(zip(requests, answers, strict=True))
        if not isinstance(answer, Refusal) and len(answer) < len(one.seeds)
    ]


def _distinct(choices: Sequence[_Choice]) -> list[_Choice]:
    """In the order of their indices, each once; as they stand where one has none."""
    indices = [choice.index for choice in choices]
    if None in indices:
        return list(choices)
    first = dict(zip(reversed(indices), reversed(choices), strict=True))
    return [first[index] for index in sorted(first, key=lambda index: index or 0)]


def _tokens(usage: Any, texts: Sequence[str]) -> list[int]:
    """Of each text: its share by words of what the server counted, else its words.

    Of several samples llama.cpp counts the first alone, which is less than the words of all.
    """
    words = [len(text.split()) for text in texts]
    total = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if (
        not isinstance(total, int)
        or isinstance(total, bool)
        or not sum(words) <= total <= _MOST_TOKENS
    ):
        return words
    weights = [count + 1 for count in words]
    bounds = [total * part // sum(weights) for part in accumulate(weights, initial=0)]
    return [after - before for before, after in pairwise(bounds)]


def _wrong_choices(reply: Mapping[str, Any]) -> str | None:
    wrong = _unlike(_Choices, reply)
    if wrong is not None:
        return wrong
    choices = _Choices.model_validate(reply).choices
    if not choices:
        return "no choices"
    return "a choice without a text" if any(one.said is None for one in choices) else None


def _wrong_vectors(reply: Mapping[str, Any], size: int) -> str | None:
    wrong = _unlike(_Vectors, reply)
    if wrong is not None:
        return wrong
    indices = sorted(one.index for one in _Vectors.model_validate(reply).data)
    return None if indices == list(range(size)) else f"{len(indices)} embeddings, expected {size}"


def _unlike(model: type[BaseModel], reply: Mapping[str, Any]) -> str | None:
    """Where the reply is not of the model's form; without the server's words, for they are long."""
    try:
        model.model_validate(reply)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None
