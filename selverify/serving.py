"""A proxy that speaks the OpenAI chat endpoint: a client gets a method by changing its address.

Knows: requests and replies of that endpoint, how many searches run and wait. Does not know: models,
methods; a ``Solver`` does. It has no keys of its own: it is for the loopback address.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from selverify.domains.math_steps import END_OF_STEP
from selverify.errors import ParamsError, ProtocolError, SchemaError, SelverifyError
from selverify.policy import Solved
from selverify.search.in_flight import shared_limits
from selverify.solving import Solver

ALIVE_SECONDS = 10.0
"""Between two signs of life of a streamed reply that is still searched for."""
LEFT_SECONDS = 0.5
"""Between two looks whether the client of a search has left."""
RETRY_SECONDS = 1
HOSTS = ("127.0.0.1", "localhost", "[::1]")
END_SECONDS = 2.0
"""Until a server that ends waits no longer for the searches that are under way."""
MOST_CALLS = 4_096
MOST_BYTES = 1 << 22
"""Of a request's body."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``running`` searches at once, ``waiting`` more.

    After ``seconds`` the client is told so. A search that waits is then dropped, as it is where its
    client has left; one that runs goes on to its end, in its place, because what its models say is
    paid for.
    """

    running: int = 8
    waiting: int = 64
    seconds: float = 600.0


class _Given(BaseModel):
    """Other fields of a request are for models that are sampled from once, and have no effect."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _said(given: Any) -> Any:
    """A field that is null is one that was not given."""
    if not isinstance(given, dict):
        return given
    return {name: value for name, value in given.items() if value is not None}


class _Part(_Given):
    type: Literal["text"]
    text: str


class _Message(_Given):
    role: str
    content: str | list[_Part]


_EXPECTED: Mapping[int | str | None, str] = {
    None: "expected an object with role and content",
    "role": "role: expected a text",
    "content": "content: expected a text or text parts only",
}
"""What the last message is where a field of it, or all of it, is something else."""


class _Search(BaseModel):
    """``extra_body={"selverify": ...}``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str | None = None
    calls: int = Field(default=16, ge=1, le=MOST_CALLS)


class _StreamOptions(_Given):
    include_usage: bool = False


class _Chat(_Given):
    model: str
    messages: list[Any] = Field(min_length=1)
    n: Literal[1] = 1
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    selverify: _Search = _Search()

    _ = model_validator(mode="before")(_said)

    @property
    def question(self) -> str:
        """The last message; the others have no effect.

        Raises:
            SchemaError: it is not the user's.
        """
        try:
            last = _Message.model_validate(self.messages[-1])
        except ValidationError as error:
            where = next(iter(error.errors(include_input=False)[0]["loc"]), None)
            raise SchemaError(f"messages: of the last, {_EXPECTED[where]}") from None
        if last.role != "user":
            raise SchemaError(
                f"messages: the last is of {last.role[:20]!r}, expected the user's question"
            )
        parts = last.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class _Busy(Exception):
    """As many searches wait as may."""


@dataclass(frozen=True, slots=True)
class _Bounded:
    """Refuses a body of more than ``MOST_BYTES`` with status 413 before more of it is read."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BYTES:
                raise HTTPException(413, f"the body: expected at most {MOST_BYTES} bytes")
            return message

        await self.app(scope, bounded, send)


@dataclass(frozen=True, slots=True)
class _Named:
    """Refuses requests to hosts of other names, with an error as the endpoint has them."""

    app: ASGIApp
    hosts: Sequence[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI call."""
        app: ASGIApp = _failed(400, "the header Host: expected a name of this server (--host-name)")

        async def passed(*_: object) -> None:
            nonlocal app
            app = self.app

        async def unsent(_: Message) -> None:
            """The refusal as plain text."""

        check = TrustedHostMiddleware(passed, list(self.hosts), www_redirect=False)
        await check(scope, receive, unsent)
        await app(scope, receive, send)


@dataclass(slots=True)
class _Desk:
    """Lets so many searches run, and so many more wait; ``begin_thread`` is called in each one."""

    solver: Solver
    limits: Limits
    begin_thread: Callable[[], object]
    under_way: int = 0
    threads: ThreadPoolExecutor = field(init=False)
    alone: Any = field(init=False)

    def __post_init__(self) -> None:
        self.threads = ThreadPoolExecutor(
            self.limits.running, thread_name_prefix="search", initializer=self.begin_thread
        )
        # A model in this process answers one search at a time.
        self.alone = nullcontext() if self.solver.waits else Lock()

    def begin(self, asked: _Chat) -> asyncio.Future[Solved]:
        """The search, which waits for a thread.

        Raises:
            _Busy: too many are under way.
            SelverifyError: the request is wrong.
        """
        how, question = asked.selverify, asked.question
        self.solver.check(question, method=how.method)
        if self.under_way >= self.limits.running + self.limits.waiting:
            raise _Busy
        self.under_way += 1
        search = self.threads.submit(self._solve, question, how)
        loop = asyncio.get_running_loop()
        search.add_done_callback(lambda _: loop.call_soon_threadsafe(self._ended))
        return asyncio.wrap_future(search)

    def _ended(self) -> None:
        self.under_way -= 1

    def _solve(self, question: str, how: _Search) -> Solved:
        with self.alone:
            (solved,) = self.solver.solve_many([question], calls=how.calls, method=how.method)
            return solved


def proxy(
    solver: Solver,
    *,
    model: str,
    limits: Limits = Limits(),
    hosts: Sequence[str] = HOSTS,
) -> FastAPI:
    """The application: ``/v1/chat/completions`` and ``/v1/models``.

    Args:
        model: the name that clients see.
        hosts: names that a request may give the server (``Host``, without the port), or "*". Others
            are refused with status 400: a page in a browser could otherwise use the models, under a
            name of its own that leads to the loopback address.
    """
    desk: list[_Desk] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        shared = ExitStack()
        desk.append(_Desk(solver, limits, shared.enter_context(shared_limits())))
        try:
            yield
        finally:
            desk.pop().threads.shutdown(wait=False, cancel_futures=True)
            # In a thread, because what functions are at work on cannot be cancelled.
            ending = Thread(target=shared.close, daemon=True)
            ending.start()
            until = time.monotonic() + END_SECONDS
            while ending.is_alive() and time.monotonic() < until:
                await asyncio.sleep(0.02)

    app = FastAPI(
        title="selverify", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan
    )
    app.add_middleware(_Bounded)
    app.add_middleware(_Named, hosts=hosts)

    @app.exception_handler(RequestValidationError)
    async def _unreadable(_: Request, error: RequestValidationError) -> Response:
        return _failed(400, _sentence(error.errors()[0]))

    @app.exception_handler(HTTPException)
    async def _refused(_: Request, error: HTTPException) -> Response:
        return _failed(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {
            "object": "list",
            "data": [{"id": model, "object": "model", "created": 0, "owned_by": "selverify"}],
        }

    @app.post("/v1/chat/completions")
    async def chat(asked: _Chat, request: Request) -> Response:
        if not desk:  # nothing began the application's life: each search has limits of its own
            desk.append(_Desk(solver, limits, lambda: None))
        try:
            search = desk[0].begin(asked)
        except _Busy:
            most = limits.running + limits.waiting
            message = f"{most} searches are under way, expected fewer; ask again later"
            return _failed(429, message, {"Retry-After": str(RETRY_SECONDS)})
        except SelverifyError as error:
            return _failed(400, str(error))
        if asked.stream:
            chunks = _streamed(search, asked, model, limits.seconds)
            return StreamingResponse(chunks, media_type="text/event-stream")
        until = time.monotonic() + limits.seconds
        while not search.done() and time.monotonic() < until:
            await asyncio.wait([search], timeout=min(LEFT_SECONDS, until - time.monotonic()))
            if not search.done() and await request.is_disconnected():
                break
        search.cancel()
        if (failure := _failure(search, limits.seconds)) is not None:
            return _failed(*failure)
        return JSONResponse(_reply(search.result(), model))

    return app


def _failure(search: asyncio.Future[Solved], seconds: float) -> tuple[int, str] | None:
    """The status and the sentence of a search that failed or was given up."""
    if search.cancelled():
        return 504, f"no answer within {seconds:g} s"
    error = search.exception()
    if error is None:
        return None
    if isinstance(error, ProtocolError):
        return 502, str(error)
    if isinstance(error, ParamsError):
        return 400, str(error)
    # Of what is no sentence of ours only the kind: it may quote the question.
    return 500, str(error) if isinstance(error, SelverifyError) else type(error).__name__


def _sentence(first: Mapping[str, Any]) -> str:
    """What is wrong with a body, from the first of its errors."""
    where = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        return f"the body: no JSON at character {where}: {first['ctx']['error']}"
    if where:
        return f"{where}: {first['msg']}"
    if isinstance(first["input"], bytes):
        # Read under any type, a page in a browser could send it without being asked (CORS).
        return "the body: given without Content-Type: application/json, expected that header"
    return "the body: given no JSON object, expected one with model and messages"


def _failed(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(_error(status, message), status_code=status, headers=headers)


def _error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 429 else "server_error"
    said = message.encode(errors="replace").decode()  # half of a surrogate pair cannot be sent
    return {"error": {"message": said, "type": kind, "param": None, "code": status}}


def _head(kind: str, model: str) -> dict[str, Any]:
    created = int(time.time())
    name = f"chatcmpl-{uuid.uuid4().hex}"
    return {"id": name, "object": kind, "created": created, "model": model}


def _usage(solved: Solved) -> dict[str, int]:
    """What the search cost; ``verifier_calls`` and ``verifier_steps`` are ours.

    ``prompt_tokens`` are those of ``Ledger.read_tokens``, fewer than were sent: no basis for bills.
    """
    spent = solved.ledger
    return {
        "prompt_tokens": spent.read_tokens,
        "completion_tokens": spent.generated_tokens,
        "total_tokens": spent.read_tokens + spent.generated_tokens,
        "verifier_calls": spent.verifier_calls,
        "verifier_steps": spent.verifier_steps,
    }


def _finish(solved: Solved) -> dict[str, Any]:
    unaccepted = list(solved.unaccepted)
    return {"answer": solved.answer, "reason": solved.reason, "unaccepted": unaccepted}


def _end(solved: Solved) -> str:
    """As the endpoint says it: without an answer calls or samples were too few."""
    return "length" if solved.answer is None else "stop"


def _reply(solved: Solved, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": END_OF_STEP.join(solved.derivation)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _end(solved)}
    return {
        **_head("chat.completion", model),
        "choices": [choice],
        "usage": _usage(solved),
        "selverify": _finish(solved),
    }


async def _streamed(
    search: asyncio.Future[Solved], asked: _Chat, model: str, seconds: float
) -> AsyncIterator[str]:
    """The solution step by step once it is found; a comment now and then until it is."""
    until = time.monotonic() + seconds
    try:
        while not search.done() and time.monotonic() < until:
            patience = min(ALIVE_SECONDS, until - time.monotonic())
            await asyncio.wait([search], timeout=max(patience, 0.0))
            if not search.done():
                yield ": searching\n\n"
    finally:  # also where the client has left: what nobody asks for would be logged
        search.cancel()
    if (failure := _failure(search, seconds)) is not None:
        yield _event(_error(*failure))
        return
    solved = search.result()
    head = _head("chat.completion.chunk", model)

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _event({**head, "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": ""})
    for place, step in enumerate(solved.derivation):
        yield chunk({"content": END_OF_STEP * (place > 0) + step})
    yield chunk({}, _end(solved), selverify=_finish(solved))
    if asked.stream_options.include_usage:
        yield _event({**head, "choices": [], "usage": _usage(solved)})
    yield "data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
