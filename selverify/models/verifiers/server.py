"""Requests to a verifier behind a server, and replies of the shape that its endpoint gives.

Knows: that a server may reply anything. Does not know: connections, retries, keys, verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from selverify.errors import ProtocolError

CHAT = "/chat/completions"
QUOTED_CHARACTERS = 80
"""Of a reply, in an error."""
Body = dict[str, object]
ReplyCheck = Callable[[Mapping[str, Any]], str | None]
"""Says what is wrong with a reply, or None."""


class Asks(Protocol):
    """What talks to a server: many bodies in, as many replies out, in their order."""

    def ask(
        self, path: str, bodies: Sequence[Mapping[str, object]], *, fault: ReplyCheck
    ) -> list[dict[str, Any]]:
        """The JSON object that the server replies to each body at ``path``.

        ``fault`` says what is wrong with one; such a reply is requested again.
        """
        ...


class ReplyShape(BaseModel):
    """What a reply must hold; a server may add to it."""

    model_config = ConfigDict(strict=True)


_Shape = TypeVar("_Shape", bound=ReplyShape)


def ask(
    asks: Asks, path: str, bodies: Sequence[Body], shape: type[_Shape], *, model: str
) -> list[_Shape]:
    """The reply of ``model`` to each body; no bodies, no request.

    Raises:
        ProtocolError: a reply has another shape.
    """
    replies = asks.ask(path, bodies, fault=partial(_fault, shape)) if bodies else []
    for reply in replies:
        if fault := _fault(shape, reply):
            raise ProtocolError(f"{model} at {path}: {fault}")
    return [shape.model_validate(reply) for reply in replies]


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
