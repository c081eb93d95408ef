"""An HTTP server of our own that stands before an upstream and plays a script of faults.

The upstream is a function of a path and a body. Each request that arrives takes the next fault of
the script, None is a healthy reply, and so is all that comes after the script.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from anyio.from_thread import start_blocking_portal

Reply = dict[str, Any]
Upstream = Callable[[str, Reply], Reply]


@dataclass(frozen=True)
class Seen:
    """A request that arrived at ``at`` (monotonic seconds)."""

    path: str
    headers: dict[str, str]
    body: Reply
    at: float


@dataclass(frozen=True)
class Exchange:
    """One request, what upstream says to it, and the connection to answer on."""

    seen: Seen
    ask: Callable[[], Awaitable[Reply]]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(
        self, status: int, body: bytes, *, length: int | None = None, **headers: str
    ) -> None:
        """Headers (``content_type`` for Content-Type) and ``body``, said to be ``length`` bytes."""
        self.begin(status, len(body) if length is None else length, **headers)
        self.writer.write(body)
        await self.writer.drain()

    def begin(self, status: int, length: int | None, **headers: str) -> None:
        """The headers alone; without a length the body ends with the connection."""
        told = {"content_type": "application/json", **headers}
        if length is not None:
            told["content_length"] = str(length)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in told.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())


Fault = Callable[[Exchange], Awaitable[None]]


@dataclass
class Proxy:
    """``seen``: every request, in order. ``answered``: the bodies that got a healthy reply.

    ``most``: faults that one request meets, repeats of it among them. Without it, requests side by
    side may come in an order in which all repeats of one take a fault of a script drawn by chance.
    """

    upstream: Upstream
    faults: Iterable[Fault | None] = ()
    most: int | None = None
    seen: list[Seen] = field(default_factory=list)
    answered: list[Reply] = field(default_factory=list)
    url: str = ""

    @property
    def faults_met(self) -> int:
        """By all requests."""
        return self._met.total()

    def play(self, faults: Iterable[Fault | None], *, most: int | None = None) -> None:
        """Begin another script, and forget what was seen."""
        self._script, self.most = iter(faults), most
        self._met.clear()
        self.seen.clear()
        self.answered.clear()

    def __enter__(self) -> Proxy:
        self._script = iter(self.faults)
        self._met: Counter[str] = Counter()
        self._ending = ExitStack()
        portal = self._ending.enter_context(start_blocking_portal(name="proxy"))
        server = portal.call(asyncio.start_server, self._serve, "127.0.0.1", 0)
        self._ending.callback(portal.call, server.close)
        host, port = server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(await _read(reader), reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client went away, or the test is over
        finally:
            writer.close()

    async def _exchange(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; whether the connection stays open."""
        self.seen.append(seen)
        fault = self._next(seen)

        async def ask() -> Reply:
            return await asyncio.to_thread(self.upstream, seen.path, seen.body)

        exchange = Exchange(seen, ask, reader, writer)
        if fault is not None:
            await fault(exchange)
            return False
        await exchange.send(200, json.dumps(await ask()).encode())
        self.answered.append(seen.body)
        return True

    def _next(self, seen: Seen) -> Fault | None:
        fault = next(self._script, None)
        request = json.dumps([seen.path, seen.body], sort_keys=True)
        if fault is None or (self.most is not None and self._met[request] >= self.most):
            return None
        self._met[request] += 1
        return fault


async def _read(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    pairs = (line.split(":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers["content-length"]))
    return Seen(first.split()[1], headers, json.loads(body), time.monotonic())


def status(code: int, *, said: str = "busy", **headers: str) -> Fault:
    """An error by the server."""
    return lambda exchange: exchange.send(
        code, json.dumps({"error": {"message": said}}).encode(), **headers
    )


def says(body: bytes, **headers: str) -> Fault:
    """These bytes with status 200."""
    return lambda exchange: exchange.send(200, body, **headers)


def rewrites(change: Callable[[Reply], object]) -> Fault:
    """What upstream says, changed."""

    async def fault(exchange: Exchange) -> None:
        await exchange.send(200, json.dumps(change(await exchange.ask())).encode())

    return fault


async def hangs(exchange: Exchange) -> None:
    """Not a byte until the client gives up."""
    await exchange.reader.read()


async def drips(exchange: Exchange) -> None:
    """A byte now and then: never silent for long, and never done."""
    exchange.begin(200, 10_000)
    while not exchange.writer.is_closing():
        exchange.writer.write(b" ")
        await exchange.writer.drain()
        await asyncio.sleep(0.05)


async def drops(exchange: Exchange) -> None:
    """The connection ends before a byte was sent."""


async def resets(exchange: Exchange) -> None:
    """The connection breaks in the middle of the headers."""
    exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await exchange.writer.drain()
    exchange.writer.transport.abort()


async def truncates(exchange: Exchange) -> None:
    """Half of what upstream says; the work was done and is lost."""
    body = json.dumps(await exchange.ask()).encode()
    await exchange.send(200, body[: len(body) // 2], length=len(body))


async def floods(exchange: Exchange) -> None:
    """A body without an end."""
    exchange.begin(200, None)
    while not exchange.writer.is_closing():
        exchange.writer.write(b" " * 65_536)
        await exchange.writer.drain()
