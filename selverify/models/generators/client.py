"""Questions to an OpenAI-compatible server: many bodies in, as many replies out.

Knows: HTTP, bounded concurrency, retries, keys, and what is no reply at all. Does not know:
prompts, samples, verdicts, searches.

What is retried, after half a second, twice as long each time and at most eight, less up to a
quarter by chance, or after what ``Retry-After`` asks for, up to two minutes: 408, 409, 429, 5xx, no
connection or a dropped one, no whole reply in time, a reply that is not a JSON object, is too
large, or is one that the caller calls faulty. ``x-should-retry`` overrules a status.
"""

from __future__ import annotations

import functools
import json
import math
import os
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from io import BytesIO
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
from anyio.from_thread import start_blocking_portal
from anyio.lowlevel import current_token
from yarl import URL

from selverify.errors import NoReply, ParamsError, Refusal
from selverify.params import Server
from selverify.search.in_flight import PORTAL

LARGEST_REPLY = 32 << 20
"""Bytes; embeddings of 256 texts at a width of 4,096 take half of it."""
FIRST_PAUSE = 0.5
_LONGEST_PAUSE, _LONGEST_ASKED_FOR = 8.0, 120.0
"""Seconds between two tries: of ours, and of those that a server asks for."""
_LONGEST_LINE = 1 << 16
"""Bytes of a header; gateways send long ones."""
_QUOTED = 300
"""Characters of a server's own words in an error."""
_RETRIED = frozenset({408, 409, 429})
_OF_THE_BODY = frozenset({400, 413, 422})
_Body = Mapping[str, object]
_Replies = list[dict[str, Any] | Refusal]
_Fault = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with a JSON object that should be a reply, or None."""


@dataclass(slots=True)
class _Line:
    """Connections to the server, how many requests it takes at once, and how many ask by it."""

    session: aiohttp.ClientSession
    limit: anyio.CapacityLimiter
    users: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """A try without a reply: its status (0: none came), what was said, and the headers."""

    status: int
    said: str
    headers: Mapping[str, str]

    def pause(self, tries: int) -> float | None:
        """Seconds to wait after as many ``tries``; None where another would not help."""
        after = _asked_for(self.headers)
        said = self.headers.get("x-should-retry")  # OpenAI's own servers say it
        retried = self.status in _RETRIED or not 0 < self.status < 500
        if after > _LONGEST_ASKED_FOR or said == "false" or not (retried or said == "true"):
            return None
        ours = min(FIRST_PAUSE * 2.0 ** min(tries - 1, 9), _LONGEST_PAUSE)
        return after or ours * random.uniform(0.75, 1.0)


class Client:
    """Asks one server; see the module's text. Keeps nothing while nothing is asked."""

    def __init__(self, server: Server) -> None:
        """Check that there is a key where one is needed.

        Raises:
            ParamsError: the url is none, or ``key_variable`` is not set, or holds no key.
        """
        self.server = server
        self._url = server.url.rstrip("/")
        _parsed(self._url, "url")
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

        async def work(line: _Line) -> None:
            for place, body in waiting:
                async with line.limit:
                    replies[place] = await self._ask_one(line.session, path, body, fault)

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
                    await line.session.close()

    async def _ask_one(
        self, session: aiohttp.ClientSession, path: str, body: _Body, fault: _Fault | None
    ) -> dict[str, Any] | Refusal:
        sent = json.dumps({"model": self.server.model, **body}).encode()
        tries = 0
        while True:
            reply = await self._try(session, path, sent, fault)
            if not isinstance(reply, _Failure):
                return reply
            tries += 1
            pause = reply.pause(tries)
            if pause is None or tries > self.server.max_retries:
                return self._failed(path, reply, retries=tries - 1)
            await anyio.sleep(pause)

    async def _try(
        self, session: aiohttp.ClientSession, path: str, sent: bytes, fault: _Fault | None
    ) -> dict[str, Any] | _Failure:
        """One request; no error of the package leaves it, since one holds the key."""
        try:
            async with session.post(
                f"{self._url}{path}",
                data=BytesIO(sent),
                headers=self._headers(),
                allow_redirects=False,
            ) as response:
                body = await _read(response)
        except TimeoutError:
            return _Failure(0, f"no whole reply within {self.server.timeout_seconds:g} s", {})
        except (aiohttp.InvalidURL, UnicodeError) as error:
            wrong = self._quoted(str(error))
        except (aiohttp.ClientError, OSError) as error:
            return _Failure(0, _cause(error), {})
        else:
            return self._taken(response, body, fault)
        raise NoReply(f"{self._url}: {wrong}; expected the address of a server")

    def _taken(
        self, response: aiohttp.ClientResponse, body: bytes | str, fault: _Fault | None
    ) -> dict[str, Any] | _Failure:
        """What came, whole or, as a text, what is wrong with it."""
        if not 200 <= response.status < 300:
            said = body if isinstance(body, str) else body.decode(errors="replace")
            return _Failure(response.status, said, response.headers)
        reply = body if isinstance(body, str) else self._checked(body, fault)
        return _Failure(0, f"a faulty reply: {reply}", {}) if isinstance(reply, str) else reply

    def _checked(self, body: bytes, fault: _Fault | None) -> dict[str, Any] | str:
        """The reply, or what is wrong with it."""
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError):
            return f"no JSON: {self._quoted(body.decode(errors='replace'))}"
        if not isinstance(reply, dict):
            return f"a JSON {type(reply).__name__}, expected an object"
        wrong = fault(reply) if fault is not None else None
        return reply if wrong is None else wrong

    def _failed(self, path: str, failure: _Failure, *, retries: int) -> Refusal:
        """The refusal of one body.

        Raises:
            Refusal: of every body.
            NoReply: the retries are used up.
        """
        status = failure.status
        where, quoted = f"{self._url}{path}", self._quoted(failure.said)
        if 0 < status < 500 and status not in _RETRIED:
            refusal = Refusal(
                f"{where}: refused with status {status}: {quoted}; expected a reply", status=status
            )
            if status in _OF_THE_BODY:
                return refusal
            raise refusal
        cause = f"status {status}: {quoted}" if status else quoted
        raise NoReply(f"{where}: {cause}; expected a reply after {retries} retries")

    def _connect(self) -> aiohttp.ClientSession:
        seconds = self.server.timeout_seconds
        proxy, login = _proxy(URL(self._url))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.server.concurrency, ssl=_trusted()),
            timeout=aiohttp.ClientTimeout(total=None if math.isinf(seconds) else seconds),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            proxy=proxy,
            proxy_auth=login,
        )

    def _headers(self) -> dict[str, str]:
        """Of a request; those of a session are sent to a proxy, too."""
        key = self._key()
        told = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        return {**told, "Authorization": f"Bearer {key}"} if key else told

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


@functools.cache
def _trusted() -> ssl.SSLContext:
    # It takes longer to make than a small model's reply.
    file, folder = (os.environ.get(f"SSL_CERT_{kind}") or None for kind in ("FILE", "DIR"))
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except OSError as error:
        raise ParamsError(
            f"SSL_CERT_FILE: given {file}, expected a file of certificates ({error})"
        ) from None


def _proxy(url: URL) -> tuple[URL | None, aiohttp.BasicAuth | None]:
    """Of the environment, and the login there; the package would send a ``.netrc``'s, too.

    Raises:
        ParamsError: it is none that speaks HTTP; the message does not hold a password.
    """
    proxies = getproxies()
    told = proxies.get(url.scheme) or proxies.get("all")
    if not told or any(proxy_bypass(name) for name in (url.authority, url.host or "")):
        return None, None
    proxy = _parsed(told if "://" in told else f"http://{told}", "a proxy of the environment")
    login = aiohttp.BasicAuth(proxy.user, proxy.password or "") if proxy.user else None
    return proxy.with_user(None), login


def _parsed(url: str, name: str) -> URL:
    with suppress(ValueError):
        parsed = URL(url)
        if parsed.scheme in ("http", "https") and parsed.host:
            return parsed
    raise ParamsError(f"{name}: given no usable address, expected http://host:port")


def _cause(error: Exception) -> str:
    """What the package says, without what it holds of requests, proxies and half a reply."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy's status {error.status}: {error.message}"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"no HTTP: {error.message}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server disconnected"
    return str(error) or type(error).__name__


def _asked_for(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait; 0 where it asks for none."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        told = headers.get(name, "")
        try:
            return max(0.0, unit * float(told))
        except ValueError:
            pass
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _spellings(key: str) -> str:
    """A pattern of the key as it stands, and as JSON may escape it."""
    return "".join(rf"(?:\\?{re.escape(c)}|(?i:\\u{ord(c):04x}))" for c in key)


async def _read(response: aiohttp.ClientResponse) -> bytes | str:
    """The whole reply, or what is wrong with it."""
    if response.headers.get("Content-Encoding", "").strip().lower() not in ("", "identity"):
        return "compressed, which was not asked for"
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > LARGEST_REPLY:
            return f"more than {LARGEST_REPLY} bytes"
    return bytes(body)
