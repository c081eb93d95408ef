"""Requests to a verifier behind a server, and replies of the shape that its endpoint gives.

Knows: that a server may reply anything, or have no room for a step. Does not know: connections,
retries, keys, verdicts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from pydantic import BaseModel, ConfigDict, ValidationError

from selverify.errors import ProtocolError, Refusal
from selverify.models.no_room import NO_ROOM_SCORE, is_no_room

CHAT = "/chat/completions"
QUOTED_CHARACTERS = 80
"""Of a reply, in an error."""
Body = dict[str, object]
ReplyCheck = Callable[[Mapping[str, Any]], str | None]
"""Says what is wrong with a reply, or None."""


class Asks(Protocol):
    """What talks to a server: many bodies in, as many replies out, in their order."""

    def ask_each(
        self, path: str, bodies: Sequence[Mapping[str, object]], *, fault: ReplyCheck
    ) -> list[dict[str, Any] | Refusal]:
        """The JSON object that the server replies to each body at ``path``, or its refusal.

        ``fault`` says what is wrong with an object; such a reply is requested again.
        """
        ...


class ReplyShape(BaseModel):
    """What a reply must hold; a server may add to it."""

    model_config = ConfigDict(strict=True)


_Shape = TypeVar("_Shape", bound=ReplyShape)
_log = logging.getLogger(__name__)
_warned: WeakSet[Asks] = WeakSet()
"""Those that were found to have no room for a step."""
_replied: WeakSet[Asks] = WeakSet()


def ask(
    asks: Asks, path: str, bodies: Sequence[Body], shape: type[_Shape], *, model: str
) -> list[_Shape | None]:
    """The reply of ``model`` to each body; no bodies, no request.

    None where the server has no room for the body, whose step then scores ``NO_ROOM_SCORE``; of one
    server it is said once.

    Raises:
        Refusal: the server refuses a body for another reason, or has had room for none so far.
        ProtocolError: a reply has another shape.
    """
    replies = asks.ask_each(path, bodies, fault=partial(_fault, shape)) if bodies else []
    if not all(isinstance(reply, Refusal) for reply in replies):
        _replied.add(asks)
    for reply in replies:
        if isinstance(reply, Refusal):
            if not is_no_room(reply) or asks not in _replied:
                raise reply
            if asks not in _warned:
                _warned.add(asks)
                _log.warning(
                    "verifier %s: given a step without room in the server's context, expected a "
                    "longer one (or a smaller max_tokens of a judge); such a step scores %s: %s",
                    model,
                    NO_ROOM_SCORE,
                    reply,
                )
        elif fault := _fault(shape, reply):
            raise ProtocolError(f"{model} at {path}: {fault}")
    return [
        None if isinstance(reply, Refusal) else shape.model_validate(reply) for reply in replies
    ]


def _fault(shape: type[ReplyShape], reply: object) -> str | None:
    """The first place that is wrong."""
    try:
        shape.model_validate(reply)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the reply"
        given = str(first["input"])[:QUOTED_CHARACTERS]
        return f"given {given!r} at {place}, expected another value there: {first['msg']}"
    return None
