"""Questions to an OpenAI-compatible server: many bodies in, as many replies out.

Knows: HTTP through the ``openai`` package, bounded concurrency, retries, keys, and what is no
reply at all. Does not know: prompts, samples, verdicts, searches.

What is retried, with the package's own backoff (from half a second up to eight, or what
``Retry-After`` asks for, up to two minutes): 408, 409, 429, 5xx, no connection or a dropped one, no
whole reply in time, a reply that is not a JSON object, is too large, or is one that the caller
calls faulty.
"""

from __future__ import annotations

import functools
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import anyio
import httpx2
import openai
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import current_token

from selverify.errors import NoReply, ParamsError, Refusal
from selverify.params import Server
from selverify.search.in_flight import PORTAL

LARGEST_REPLY = 32 << 20
"""Bytes; embeddings of 256 texts at a width of 4,096 take half of it."""
_QUOTED = 300
"""Characters of a server's own words in an error."""
_REPLY = "selverify.reply"
_RETRIED = frozenset({408, 409, 429})
_OF_THE_BODY = frozenset({400, 413, 422})
_STEERING = ("retry-after", "retry-after-ms", "x-should-retry")
_Body = Mapping[str, object]
_Replies = list[dict[str, Any] | Refusal]
_Fault = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with a JSON object that should be a reply, or None."""
_FAULT: ContextVar[_Fault | None] = ContextVar("_FAULT", default=None)


@dataclass(slots=True)
class _Line:
    """Connections to the server, how many requests it takes at once, and how many ask by it."""

    api: openai.AsyncOpenAI
    limit: anyio.CapacityLimiter
    users: int = 0


class Client:
    """Asks one server; see the module's text. Keeps nothing while nothing is asked."""

    def __init__(self, server: Server) -> None:
        """Check that there is a key where one is needed.

        Raises:
            ParamsError: ``key_variable`` is not set, or holds what cannot be a key.
        """
        self.server = server
        self._url = server.url.rstrip("/")
        self._lines: dict[object, _Line] = {}
        self._key()

    def ask(
        self, path: str, bodies: Sequence[_Body], *, fault: _Fault | None = None
    ) -> list[dict[str, Any]]:
        """The reply to each body, in their order; a body without a model is given the server's.

        Works in any thread, also in one that runs an event loop, which it then blocks. When it is
        interrupted or fails, requests under way are cancelled and its thread ends first.

        Args:
            path: below the server's url, like "/completions".
            bodies: one JSON object a request.
            fault: calls a reply faulty, which is then asked for again.

        Raises:
            Refusal: the server refuses a body for good.
            NoReply: no reply to a body after all retries.
        """
        replies = []
        for reply in self.ask_each(path, bodies, fault=fault):
            if isinstance(reply, Refusal):
                raise reply
            replies.append(reply)
        return replies

    def ask_each(
        self, path: str, bodies: Sequence[_Body], *, fault: _Fault | None = None
    ) -> _Replies:
        """As ``ask``, but what the server refuses a body with (400, 413, 422) is its reply."""
        if not bodies:
            return []
        try:
            under_way = PORTAL.get()
            if under_way is not None:  # it cancels what is asked for when the searches end
                return under_way.call(self._ask_all, path, bodies, fault)
            with start_blocking_portal(name="selverify-client") as portal:
                return portal.call(self._ask_all, path, bodies, fault)
        except ExceptionGroup as failures:
            failure = failures.exceptions[0]
        raise failure

    async def _ask_all(self, path: str, bodies: Sequence[_Body], fault: _Fault | None) -> _Replies:
        """All replies; the first failure ends the requests still under way."""
        replies: _Replies = [{}] * len(bodies)
        waiting = iter(enumerate(bodies))
        _FAULT.set(fault)

        async def work(line: _Line) -> None:
            for place, body in waiting:
                async with line.limit:
                    replies[place] = await self._ask_one(line.api, path, body)

        async with self._line() as line, anyio.create_task_group() as group:
            for _ in range(min(self.server.concurrency, len(bodies))):
                group.start_soon(work, line)
        return replies

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[_Line]:
        """The connections of this event loop: the first that asks opens them, the last closes."""
        loop = current_token()
        line = self._lines.get(loop)
        if line is None:
            line = _Line(self._connect(), anyio.CapacityLimiter(self.server.concurrency))
            self._lines[loop] = line
        line.users += 1
        try:
            yield line
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[loop]
                with anyio.CancelScope(shield=True):
                    await line.api.close()

    async def _ask_one(
        self, api: openai.AsyncOpenAI, path: str, body: _Body
    ) -> dict[str, Any] | Refusal:
        whole = {"model": self.server.model, **body}
        # The package would send other keys of the environment where it is given none.
        options: openai.RequestOptions = (
            {} if self.server.key_variable else {"headers": {"Authorization": openai.omit}}
        )
        try:
            response = await api.post(path, cast_to=httpx2.Response, body=whole, options=options)
            reply: dict[str, Any] = response.extensions[_REPLY]
            return reply
        except openai.APIStatusError as error:
            status, said = error.status_code, error.response.text
        except openai.APIConnectionError as error:
            status, said = 0, str(error.__cause__) or type(error.__cause__).__name__
        # Outside the handlers, so that no error in the chain holds what the server said.
        return self._failed(path, status, said)

    def _failed(self, path: str, status: int, said: str) -> Refusal:
        """The refusal of one body.

        Raises:
            Refusal: of every body.
            NoReply: the retries are used up.
        """
        where, quoted = f"{self._url}{path}", self._quoted(said)
        if status and status < 500 and status not in _RETRIED:
            refusal = Refusal(
                f"{where}: refused with status {status}: {quoted}; expected a reply", status=status
            )
            if status in _OF_THE_BODY:
                return refusal
            raise refusal
        cause = f"status {status}: {quoted}" if status else quoted
        raise NoReply(f"{where}: {cause}; expected a reply after {self.server.max_retries} retries")

    def _connect(self) -> openai.AsyncOpenAI:
        server = self.server
        return openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key() or "none",
            max_retries=server.max_retries,
            timeout=server.timeout_seconds,
            http_client=_Reader(
                server.timeout_seconds,
                connections=server.concurrency,
                verify=_trusted(),
                quote=self._quoted,
            ),
        )

    def _key(self) -> str | None:
        name = self.server.key_variable
        if name is None:
            return None
        key = os.environ.get(name, "").strip()
        if not re.fullmatch(r"[!-~]+", key):
            raise ParamsError(
                f"key_variable: the environment's {name} holds {'no key' if key else 'nothing'}, "
                f"expected the key of {self._url}"
            )
        return key

    def _quoted(self, said: str) -> str:
        """The beginning of a server's words on one line, without the key."""
        key = self._key()
        if key is not None:
            said = re.sub(_spellings(key), "[key]", said)
        words = " ".join(
            "".join(c if c.isprintable() else " " for c in said[: 4 * _QUOTED]).split()
        )
        return words[:_QUOTED] or "no words"


class _Reader(httpx2.AsyncClient):
    """Reads whole replies; one that is none fails like a dropped connection, and is retried."""

    def __init__(
        self,
        seconds: float,
        *,
        connections: int,
        verify: ssl.SSLContext,
        quote: Callable[[str], str],
    ) -> None:
        super().__init__(
            timeout=seconds,
            limits=httpx2.Limits(max_connections=connections),
            verify=verify,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
        )
        self._seconds = seconds
        self._quote = quote

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            # The client's own limit is one between two bytes, which a slow server never reaches.
            with anyio.fail_after(self._seconds):
                response = await super().send(request, **{**options, "stream": True})
                try:
                    body = await _read(response, request)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx2.TimeoutException):
            message = f"no whole reply within {self._seconds:g} s"
            raise httpx2.ReadTimeout(message, request=request) from None
        kept = {name: response.headers[name] for name in _STEERING if name in response.headers}
        whole = httpx2.Response(response.status_code, headers=kept, content=body, request=request)
        if whole.is_success:
            whole.extensions[_REPLY] = self._checked(body, request)
        return whole

    def _checked(self, body: bytes, request: httpx2.Request) -> dict[str, Any]:
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError):
            _call_faulty(f"no JSON: {self._quote(body.decode(errors='replace'))}", request)
        if not isinstance(reply, dict):
            _call_faulty(f"a JSON {type(reply).__name__}, expected an object", request)
        fault = _FAULT.get()
        if fault is not None and (wrong := fault(reply)) is not None:
            _call_faulty(wrong, request)
        return reply


@functools.cache
def _trusted() -> ssl.SSLContext:
    # It takes longer to make than a small model's reply.
    return httpx2.create_ssl_context()


def _spellings(key: str) -> str:
    """A pattern of the key as it stands, and as JSON may escape it."""
    return "".join(rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}))" for c in key)


async def _read(response: httpx2.Response, request: httpx2.Request) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        _call_faulty("compressed, which was not asked for", request)
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > LARGEST_REPLY:
            _call_faulty(f"more than {LARGEST_REPLY} bytes", request)
    return bytes(body)


def _call_faulty(wrong: str, request: httpx2.Request) -> NoReturn:
    raise httpx2.RemoteProtocolError(f"a faulty reply: {wrong}", request=request)
