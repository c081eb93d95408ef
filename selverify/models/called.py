"""A generator and a verifier that are functions of the user's.

Knows: how a function is called and what it may reply. Does not know: what is behind it.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from itertools import islice
from pathlib import Path
from reprlib import Repr
from threading import Semaphore
from typing import Any, TypeVar

from selverify.domains.base import Domain, close_move, split_moves
from selverify.errors import ParamsError, ProtocolError
from selverify.models.verifiers.steps import verdict_of
from selverify.search.requests import CompleteItem, ProposeItem, VerifyItem
from selverify.types import Move, Sample, State, Verdict

Generate = (
    Callable[[str, list[str], int], Sequence[str]]
    | Callable[[list[tuple[str, list[str], int]]], Sequence[Sequence[str]]]
)
"""``generate(question, steps, n)``: n texts of the next step after ``steps``; or ``batched``."""
Score = (
    Callable[[str, list[str]], Sequence[float]]
    | Callable[[list[tuple[str, list[str]]]], Sequence[Sequence[float]]]
)
"""``score(question, steps)``: a score in [0, 1] for each of ``steps``; or ``batched``."""
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
_FAILED: ContextVar[list[str] | None] = ContextVar("failed", default=None)
"""What the failed calls of a run said."""
_BATCHED = "_selverify_batched"
_CHARACTERS_A_TOKEN = 4
_MAIN = "__main__"
_SHOWN = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


def batched(function: F) -> F:
    """Decorate a function that takes a list of requests, and replies with a list: one a request.

    A request is the tuple of what a plain function takes: ``(question, steps, n)`` of a generator,
    ``(question, steps)`` of a verifier. All requests that searches wait for come in one call.

    Raises:
        ParamsError: no function, or one that takes no attribute, such as a method of an object.
    """
    marked: object = function
    if isinstance(function, staticmethod | classmethod):
        marked = function.__func__
    try:
        if not callable(marked):
            raise TypeError
        setattr(marked, _BATCHED, True)
    except (AttributeError, TypeError):
        raise ParamsError(
            f"batched: given {_SHOWN.repr(function)}, expected a function (a method where its "
            "class defines it)"
        ) from None
    return function


def is_batched(function: object) -> bool:
    """Whether ``batched`` decorated it."""
    return getattr(function, _BATCHED, False) is True


@contextmanager
def one_run() -> Iterator[None]:
    """In it, also in threads begun there, no function is called after a call has failed."""
    before = _FAILED.set([])
    try:
        yield
    finally:
        _FAILED.reset(before)


@contextmanager
def _in_a_run() -> Iterator[None]:
    """A call of a function: fails likewise where one of the run has failed, and else says so."""
    failed = _FAILED.get()
    if failed:
        raise ProtocolError(failed[0])
    try:
        yield
    except ProtocolError as error:
        if failed is not None:
            failed.append(str(error))
        raise


class _Called:
    """A function, and how many calls of it may be under way."""

    def __init__(self, function: Callable[..., Any], at_once: int) -> None:
        self._function = function
        self.batched = is_batched(function)
        self._at_once = 0 if self.batched else at_once
        self._turn = Semaphore(max(at_once, 1))

    def __call__(self, *arguments: Any) -> Any:
        """Its reply, as ``_listed``, once it is this call's turn; errors as in ``call``.

        After a failed call of the same run this one fails likewise and is not made.
        """
        with self._turn if self._at_once else nullcontext(), _in_a_run():
            return _listed(self._function, *arguments)

    def batch(self, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies of a batched function, as ``_listed``.

        Raises:
            ProtocolError: it raises, or replies with something else than one to a request.
        """
        if not requests:
            return []
        with _in_a_run():
            found = _listed(self._function, list(requests))
            if not isinstance(found, list) or len(found) != len(requests):
                raise ProtocolError(
                    f"{_name(self._function)}: given {_SHOWN.repr(found)}, expected "
                    f"{len(requests)} replies, one a request"
                )
            return [_as_list(self._function, one) for one in found]

    def map(self, ask: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``ask``, which calls the function, of each item: in their order, or in threads."""
        if self._at_once < 2 or len(items) < 2:
            return list(map(ask, items))
        with ThreadPoolExecutor(min(self._at_once, len(items))) as threads:
            begun = [threads.submit(copy_context().run, ask, item) for item in items]
            try:
                return [one.result() for one in begun]
            finally:  # after an error no further item is begun
                threads.shutdown(wait=False, cancel_futures=True)


class CalledGenerator:
    """Satisfies ``Proposer``. A solution is made step by step; temperatures are the function's.

    ``at_once`` calls may be under way together, in threads; 0: one after the other.
    """

    def __init__(
        self, generate: Generate, domain: Domain, *, max_moves: int, at_once: int = 0
    ) -> None:
        self._generate = generate
        self._called = _Called(generate, at_once)
        self._domain = domain
        self._max_moves = max_moves

    def identity(self) -> str:
        """Of the function's name and the length of solutions: what it does cannot be seen."""
        return f"{place_of(self._generate)} {self._max_moves}"

    def tokens(self, text: str) -> int:
        """An estimate: a token for each four characters begun."""
        return -(-len(text) // _CHARACTERS_A_TOKEN)

    def parameters(self) -> None:
        """Unknown."""

    def propose(self, items: Sequence[ProposeItem]) -> tuple[tuple[Sample, ...], ...]:
        """``count`` next steps an item.

        Raises:
            ProtocolError: the function raises, or replies with something else.
        """
        found = self._steps([(item.state, item.state.said, item.count) for item in items])
        return tuple(tuple(self._sample([text]) for text in texts) for texts in found)

    def complete(self, items: Sequence[CompleteItem]) -> tuple[tuple[Sample, ...], ...]:
        """``count`` solutions an item, ended by an answer, an empty text or ``max_moves``.

        Raises:
            ProtocolError: as above.
        """
        wanted = [item.state for item in items for _ in range(item.count)]
        if self._called.batched:
            made = iter(self._solutions(wanted))
        else:
            made = iter(self._called.map(lambda state: self._solutions([state])[0], wanted))
        return tuple(
            tuple(self._sample(texts) for texts in islice(made, item.count)) for item in items
        )

    def _solutions(self, states: Sequence[State]) -> list[list[str]]:
        """One a state, step by step."""
        said: list[list[str]] = [[] for _ in states]
        growing = list(range(len(states)))
        while growing := [one for one in growing if not self._ended(states[one], said[one])]:
            asked = [(states[one], (*states[one].said, *said[one]), 1) for one in growing]
            for one, texts in zip(growing, self._steps(asked), strict=True):
                said[one] += texts
        return said

    def _ended(self, state: State, said: Sequence[str]) -> bool:
        if len(state.derivation) + len(said) >= self._max_moves or (said and not said[-1].strip()):
            return True
        move = self._domain.parse(said[-1]) if said else None
        return isinstance(move, Move) and move.op == "answer"

    def _steps(self, asked: Sequence[tuple[State, Sequence[str], int]]) -> list[list[str]]:
        """For each state, and the steps since the question, so many texts of the next step."""
        requests = [(state.problem.text, list(steps), count) for state, steps, count in asked]
        if self._called.batched:
            return list(map(self._texts, asked, self._called.batch(requests)))
        return self._called.map(
            lambda place: self._texts(asked[place], self._called(*requests[place])),
            range(len(asked)),
        )

    def _texts(self, asked: tuple[State, Sequence[str], int], found: Any) -> list[str]:
        state, steps, count = asked
        if (
            not isinstance(found, list)
            or len(found) != count
            or not all(isinstance(one, str) for one in found)
        ):
            raise ProtocolError(
                f"generator {_name(self._generate)}: given {_SHOWN.repr(found)} for "
                f"{state.problem.problem_id} after {len(steps)} steps, expected {count} texts"
            )
        # A text that holds several steps is its first one.
        end = self._domain.end_of_move
        return [close_move(next(iter(split_moves(text, end)), ""), end) for text in found]

    def _sample(self, texts: Sequence[str]) -> Sample:
        end = self._domain.end_of_move
        text = (" " if end.strip() else end).join(texts)
        return Sample(text, self.tokens(text), 0.0)


class CalledVerifier:
    """Satisfies ``Verifier``; ``at_once`` as of ``CalledGenerator``."""

    def __init__(self, score: Score, *, at_once: int = 0) -> None:
        self._score = score
        self._called = _Called(score, at_once)

    def identity(self) -> str:
        """Of the function's name: what it does cannot be seen."""
        return place_of(self._score)

    def parameters(self) -> None:
        """Unknown."""

    def verify(self, items: Sequence[VerifyItem]) -> tuple[Verdict, ...]:
        """The scores of each item's new steps.

        Raises:
            ProtocolError: the function raises, or replies with something else.
        """
        if not self._called.batched:
            return tuple(
                self._called.map(
                    lambda item: self._verdict(item, self._called(*_request(item))), items
                )
            )
        found = self._called.batch([_request(item) for item in items])
        return tuple(map(self._verdict, items, found))

    def _verdict(self, item: VerifyItem, found: Any) -> Verdict:
        _, steps = _request(item)
        try:
            scores = [float(one) for one in found] if isinstance(found, list) else []
        except Exception:  # it holds something else than numbers
            scores = []
        if (
            not isinstance(found, list)
            or len(scores) != len(steps)
            or not all(math.isfinite(one) and 0.0 <= one <= 1.0 for one in scores)
        ):
            raise ProtocolError(
                f"verifier {_name(self._score)}: given {_SHOWN.repr(found)} for "
                f"{item.state.problem.problem_id}, expected {len(steps)} scores in [0, 1], one a "
                "step"
            )
        return verdict_of(scores[len(item.state.said) :])


def _request(item: VerifyItem) -> tuple[str, list[str]]:
    """The question, and all steps."""
    return item.state.problem.text, [*item.state.said, *(move.text for move in item.steps)]


def _listed(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns or yields, as a list; a text, keys and members as they are.

    Raises:
        ProtocolError: it raises, also while it yields.
    """
    return _as_list(function, call(function, *arguments))


def _as_list(function: Callable[..., Any], found: Any) -> Any:
    # Digits of a text, keys and members would pass for scores.
    if not isinstance(found, Iterable) or isinstance(
        found, str | bytes | bytearray | Mapping | Set
    ):
        return found
    try:
        return list(found)
    except Exception as error:
        raise _raised(function, error) from error


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the user's replies.

    Raises:
        ProtocolError: it raises.
    """
    try:
        found = function(*arguments)
    except Exception as error:
        raise _raised(function, error) from error
    if inspect.iscoroutine(found):
        found.close()
        raise ProtocolError(f"{_name(function)}: given an async function, expected a plain one")
    return found


def _raised(function: Callable[..., Any], error: Exception) -> ProtocolError:
    return ProtocolError(
        f"{_name(function)}: raised {type(error).__name__}: {error}; expected a reply"
    )


def has_a_place(function: Callable[..., Any]) -> bool:
    """Whether its ``identity`` or its name says which function it is.

    The name does not where it is of a lambda, of an object or of an object's method, nor where one
    function makes others that hold its variables, nor where it was typed in, in no file.
    """
    if _told(function) is not None:
        return True
    name = getattr(function, "__qualname__", "")
    of_an_object = inspect.ismethod(function) and not isinstance(function.__self__, type)
    kept = ("__closure__", "__defaults__", "__kwdefaults__")
    made = "<locals>" in name and any(getattr(function, one, None) for one in kept)
    typed = _MAIN in map(_module, _named(function))
    return bool(name) and "<lambda>" not in name and not of_an_object and not made and not typed


def place_of(function: Callable[..., Any]) -> str:
    """Its ``identity``, or its module and name; of a method also its name, or its class.

    The module of a script is its file.
    """
    if (told := _told(function)) is not None:
        return (
            f"function called {told}{f' {_name(function)}' if inspect.ismethod(function) else ''}"
        )
    return "function " + " of ".join(f"{_module(one)} {_name(one)}" for one in _named(function))


def _named(function: Callable[..., Any]) -> list[Any]:
    """The function, and the class that it is a method of."""
    owner = getattr(function, "__self__", None)
    return [function, owner] if isinstance(owner, type) else [function]


def _module(named: Any) -> str:
    """Its module; of what is run as a script the file, if there is one."""
    name = getattr(named, "__module__", "")
    file = getattr(sys.modules.get(name), "__file__", None) if name == _MAIN else None
    return f"{name} {Path(file).absolute()}" if file else str(name)


def _told(function: Callable[..., Any]) -> str | None:
    """What the user calls a function, or the object of a method."""
    for one in (function, getattr(function, "__self__", None)):
        told = getattr(one, "identity", None)
        if isinstance(told, str):
            return told
    return None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
