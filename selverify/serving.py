"""A proxy that speaks the OpenAI chat endpoint: a client gets a method by changing its address.

Knows: requests and replies of that endpoint, how many searches run and wait. Does not know: models,
methods; a ``Solver`` does. It has no keys of its own: it is for the loopback address.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import ParamsError, ProtocolError, SchemaError, SelverifyError
from selverify.policy import Solved
from selverify.solving import Solver

ALIVE_SECONDS = 10.0
"""Between two signs of life of a streamed reply that is still searched for."""
RETRY_SECONDS = 1
MOST_CALLS = 4_096


@dataclass(frozen=True, slots=True)
class Limits:
    """``running`` searches at once, ``waiting`` more; one that takes ``seconds`` is given up."""

    running: int = 8
    waiting: int = 64
    seconds: float = 600.0


class _Given(BaseModel):
    """Other fields of a request are for models that are sampled from once, and have no effect."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Part(_Given):
    type: Literal["text"]
    text: str


class _Message(_Given):
    role: str
    content: str | list[_Part]

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class _Search(BaseModel):
    """``extra_body={"selverify": ...}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str | None = None
    calls: int = Field(default=16, ge=1, le=MOST_CALLS)


class _StreamOptions(_Given):
    include_usage: bool = False


class _Chat(_Given):
    model: str
    messages: list[_Message] = Field(min_length=1)
    n: Literal[1] = 1
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    selverify: _Search = _Search()

    @property
    def question(self) -> str:
        """The last message.

        Raises:
            SchemaError: it is not the user's.
        """
        last = self.messages[-1]
        if last.role != "user":
            raise SchemaError(
                f"messages: the last is of {last.role[:20]!r}, expected the user's question"
            )
        return last.text


class _Busy(Exception):
    """As many searches wait as may."""


@dataclass(slots=True)
class _Desk:
    """Lets so many searches run, and so many more wait."""

    solver: Solver
    limits: Limits
    under_way: int = 0
    running: asyncio.Semaphore = field(init=False)
    alone: Any = field(init=False)

    def __post_init__(self) -> None:
        self.running = asyncio.Semaphore(self.limits.running)
        # A model in this process answers one search at a time.
        self.alone = nullcontext() if self.solver.waits else Lock()

    def begin(self, asked: _Chat) -> asyncio.Task[Solved]:
        """The search, as a task.

        Raises:
            _Busy: too many are under way.
        """
        question = asked.question
        if self.under_way >= self.limits.running + self.limits.waiting:
            raise _Busy
        self.under_way += 1
        task = asyncio.create_task(self._search(question, asked.selverify))
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Solved]) -> None:
        self.under_way -= 1
        if not task.cancelled():
            task.exception()  # it may be that nobody waits for it any more

    async def _search(self, question: str, how: _Search) -> Solved:
        async with self.running:
            return await asyncio.to_thread(self._solve, question, how)

    def _solve(self, question: str, how: _Search) -> Solved:
        with self.alone:
            (solved,) = self.solver.solve_many([question], calls=how.calls, method=how.method)
            return solved


def proxy(solver: Solver, *, model: str, limits: Limits = Limits()) -> FastAPI:
    """The application: ``/v1/chat/completions`` and ``/v1/models``.

    Args:
        model: the name that clients see.
    """
    app = FastAPI(title="selverify", docs_url=None, redoc_url=None, openapi_url=None)
    desk: list[_Desk] = []  # in the event loop of the server

    @app.exception_handler(RequestValidationError)
    async def _unreadable(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "the body"
        return _failed(400, f"{where}: {first['msg']}")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": model, "object": "model", "created": 0, "owned_by": "selverify"}],
        }

    @app.post("/v1/chat/completions")
    async def chat(asked: _Chat) -> Response:
        if not desk:
            desk.append(_Desk(solver, limits))
        try:
            task = desk[0].begin(asked)
        except _Busy:
            most = limits.running + limits.waiting
            message = f"{most} searches are under way, expected fewer; ask again later"
            return _failed(429, message, {"Retry-After": str(RETRY_SECONDS)})
        except SelverifyError as error:
            return _failed(400, str(error))
        if asked.stream:
            chunks = _streamed(task, asked, model, limits.seconds)
            return StreamingResponse(chunks, media_type="text/event-stream")
        try:
            solved = await asyncio.wait_for(asyncio.shield(task), limits.seconds)
        except TimeoutError:
            return _failed(504, f"no answer within {limits.seconds:g} s")
        except SelverifyError as error:
            return _failed(_status(error), str(error))
        return JSONResponse(_reply(solved, model))

    return app


def _status(error: SelverifyError) -> int:
    """A fault of the request, or of a model behind us."""
    if isinstance(error, ProtocolError):
        return 502
    return 400 if isinstance(error, ParamsError | SchemaError) else 500


def _failed(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(_error(status, message), status_code=status, headers=headers)


def _error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 429 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _head(kind: str, model: str) -> dict[str, Any]:
    created = int(time.time())
    name = f"chatcmpl-{uuid.uuid4().hex}"
    return {"id": name, "object": kind, "created": created, "model": model}


def _usage(solved: Solved) -> dict[str, int]:
    """What the search cost; ``verifier_calls`` and ``verifier_steps`` are ours."""
    spent = solved.ledger
    return {
        "prompt_tokens": spent.read_tokens,
        "completion_tokens": spent.generated_tokens,
        "total_tokens": spent.read_tokens + spent.generated_tokens,
        "verifier_calls": spent.verifier_calls,
        "verifier_steps": spent.verifier_steps,
    }


def _finish(solved: Solved) -> dict[str, Any]:
    return {"answer": solved.answer, "reason": solved.reason}


def _reply(solved: Solved, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": END_OF_STEP.join(solved.derivation)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        **_head("chat.completion", model),
        "choices": [choice],
        "usage": _usage(solved),
        "selverify": _finish(solved),
    }


async def _streamed(
    task: asyncio.Task[Solved], asked: _Chat, model: str, seconds: float
) -> AsyncIterator[str]:
    """The solution step by step once it is found; a comment now and then until it is."""
    until = time.monotonic() + seconds
    while not task.done() and time.monotonic() < until:
        patience = min(ALIVE_SECONDS, until - time.monotonic())
        await asyncio.wait([task], timeout=max(patience, 0.0))
        if not task.done():
            yield ": searching\n\n"
    if not task.done():
        yield _event(_error(504, f"no answer within {seconds:g} s"))
        return
    error = task.exception()
    if isinstance(error, SelverifyError):
        yield _event(_error(_status(error), str(error)))
        return
    solved = task.result()
    head = _head("chat.completion.chunk", model)

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    for place, step in enumerate(solved.derivation):
        yield chunk({"content": END_OF_STEP * (place > 0) + step})
    yield chunk({}, "stop", selverify=_finish(solved))
    if asked.stream_options.include_usage:
        yield _event({**head, "choices": [], "usage": _usage(solved)})
    yield "data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
