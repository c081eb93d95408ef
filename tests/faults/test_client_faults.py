"""The client before a server that fails in every way that a proxy of our own can play."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import proxy
import pytest
from anyio.from_thread import start_blocking_portal
from proxy import Fault, Proxy, Reply, rewrites, says, status
from pydantic import ValidationError
from stand_in import NOWHERE
from yarl import URL

from selverify.domains.word_problems import WordProblems
from selverify.errors import NoReply, ParamsError, ProtocolError, Refusal
from selverify.models.prompting import Prompt
from selverify.params import Sampling, Server
from selverify.search.backend import Proposer
from selverify.search.driver import Result
from selverify.types import Outcome, Problem

client = pytest.importorskip("selverify.models.generators.client")
served = pytest.importorskip("selverify.models.generators.served")

KEY = "sk-very-secret/of-42"
LARGEST = 200_000


@pytest.fixture(autouse=True)
def small_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood that ends soon."""
    monkeypatch.setattr(client, "LARGEST_REPLY", LARGEST)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a thread of the client's."""
    yield
    assert own_threads() == []


def own_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("selverify", "AnyIO"))]


def echo(path: str, body: Reply) -> Reply:
    """An upstream that says what it was asked."""
    return {"path": path, "told": body["told"]}


def asking(url: str, **changed: object) -> client.Client:
    """A client of the server at ``url``."""
    told = {"url": url, "concurrency": 3, "timeout_seconds": 0.5, "max_retries": 2, **changed}
    return client.Client(Server.model_validate({**NOWHERE, **told}))


def bodies(count: int) -> list[Reply]:
    return [{"told": number} for number in range(count)]


def untold(reply: Reply) -> str | None:
    """A caller's own idea of a faulty reply."""
    return None if "told" in reply else "nothing told"


FAULTS: dict[str, tuple[Fault, str]] = {
    "429": (status(429), "status 429"),
    "429 with Retry-After": (status(429, retry_after="0.05"), "status 429"),
    "408": (status(408), "status 408"),
    "500": (status(500), "status 500"),
    "503": (status(503), "status 503"),
    "hang": (proxy.hangs, "no whole reply within 0.5 s"),
    "drip": (proxy.drips, "no whole reply within 0.5 s"),
    "dropped before the headers": (proxy.drops, "disconnected"),
    "reset in the headers": (proxy.resets, ""),
    "truncated": (proxy.truncates, "payload is not completed"),
    "flood": (proxy.floods, f"more than {LARGEST} bytes"),
    "html": (says(b"<html>Bad gateway</html>", content_type="text/html"), "no JSON: <html>"),
    "broken JSON": (says(b'{"told": 1'), "no JSON"),
    "deep JSON": (says(b"[" * 100_000), "no JSON"),
    "digits": (says(b'{"told": ' + b"9" * 100_000 + b"}"), "no JSON"),
    "nothing": (says(b""), "no JSON: no words"),
    "bytes": (says(b"\xff\xfe\x00"), "no JSON"),
    "a list": (says(b"[1]"), "a JSON list, expected an object"),
    "compressed": (says(b"\x1f\x8b", content_encoding="gzip"), "compressed"),
    "faulty to the caller": (rewrites(lambda reply: {}), "nothing told"),
}
EACH = pytest.mark.parametrize(("fault", "said"), FAULTS.values(), ids=FAULTS.keys())


@EACH
def test_a_fault_is_recovered_from(fault: Fault, said: str) -> None:
    """Every body gets its reply, in order, and no other request is sent twice."""
    with Proxy(echo, [None, fault]) as server:
        replies = asking(server.url).ask("/x", bodies(5), fault=untold)
    assert replies == [{"path": "/v1/x", "told": number} for number in range(5)]
    assert len(server.seen) == 6
    assert sorted(body["told"] for body in server.answered) == [0, 1, 2, 3, 4]


@EACH
def test_a_fault_that_stays_is_one_clear_error(fault: Fault, said: str) -> None:
    """After as many retries as were set: where, what happened, what was expected."""
    with Proxy(echo, [fault] * 9) as server, pytest.raises(ProtocolError) as caught:
        # A busy machine must not make a timeout of what is another fault.
        patience = 0.5 if "within 0.5 s" in said else 20.0
        asking(server.url, timeout_seconds=patience).ask("/x", bodies(1), fault=untold)
    assert len(server.seen) == 3
    message = str(caught.value)
    assert message.startswith(f"{server.url}/x: ") and said in message
    assert message.endswith("; expected a reply after 2 retries") and "\n" not in message
    assert len(message) < 500


@pytest.mark.parametrize("told", ["", "identity", "Identity"])
def test_a_reply_that_says_it_is_not_compressed_is_taken(told: str) -> None:
    """In any case of letters, or in no letters."""
    with Proxy(echo, [says(b'{"told": 0}', content_encoding=told)]) as server:
        assert asking(server.url).ask("/x", bodies(1), fault=untold) == [{"told": 0}]
    assert len(server.seen) == 1


def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    """A port on which nothing listens."""
    with Proxy(echo) as server:
        pass
    with pytest.raises(ProtocolError, match=f"{server.url}/x: .+; expected a reply"):
        asking(server.url).ask("/x", bodies(2))


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 413, 422])
def test_a_refusal_is_raised_at_once(code: int) -> None:
    """With its status and the server's words; a redirection is not followed."""
    refuses = status(code, said="no such thing", location="http://127.0.0.1:9/")
    with Proxy(echo, [refuses] * 9) as server, pytest.raises(Refusal) as caught:
        asking(server.url).ask("/x", bodies(1))
    assert len(server.seen) == 1 and caught.value.status == code
    assert f"/x: refused with status {code}: " in str(caught.value)
    assert "no such thing" in str(caught.value)


def test_a_refused_body_leaves_the_others_their_replies() -> None:
    """Where the caller can do with less than all replies."""
    with Proxy(echo, [None, status(400), None]) as server:
        first, second, third = asking(server.url, concurrency=1).ask_each("/x", bodies(3))
    assert (first["told"], third["told"]) == (0, 2)
    assert isinstance(second, Refusal) and second.status == 400


def test_a_failure_ends_the_requests_under_way() -> None:
    """One body is refused while another's reply is waited for."""
    with Proxy(echo, [proxy.hangs, status(401)]) as server:
        began = time.monotonic()
        with pytest.raises(Refusal):
            asking(server.url, timeout_seconds=60.0).ask("/x", bodies(2))
        assert time.monotonic() - began < 10.0


def test_retry_after_is_kept_to() -> None:
    """The next try comes no sooner."""
    with Proxy(echo, [status(429, retry_after="0.4")]) as server:
        asking(server.url).ask("/x", bodies(1))
    assert server.seen[1].at - server.seen[0].at >= 0.4


@pytest.mark.parametrize("asked", ["50", "date", "-1", "nan", "soon"])
def test_what_retry_after_may_be(asked: str) -> None:
    """Milliseconds, a date; what is none leaves the pause to the client."""
    told = {"retry_after": asked}
    if asked == "50":
        told = {"retry_after_ms": asked, "retry_after": "60"}
    if asked == "date":
        told = {"retry_after": formatdate(time.time() + 2.0, usegmt=True)}
    began = time.time()
    with Proxy(echo, [status(503, **told)]) as server:
        asking(server.url).ask("/x", bodies(1))
    assert len(server.seen) == 2
    # A date has no fractions of a second.
    assert (time.time() - began >= 0.9) == (asked == "date")


@pytest.mark.parametrize(
    "told", [{"retry_after": "3600"}, {"retry_after": "inf"}, {"x_should_retry": "false"}]
)
def test_a_server_that_wants_no_retry_gets_none(told: dict[str, str]) -> None:
    """An hour is not waited for."""
    with Proxy(echo, [status(429, **told)] * 9) as server, pytest.raises(NoReply) as caught:
        asking(server.url).ask("/x", bodies(1))
    assert len(server.seen) == 1
    assert str(caught.value).endswith("; expected a reply after 0 retries")


def test_a_refusal_is_retried_where_the_server_says_so() -> None:
    """OpenAI's servers do, of a request that may be taken a moment later."""
    with Proxy(echo, [status(400, x_should_retry="true")]) as server:
        asking(server.url).ask("/x", bodies(1))
    assert len(server.seen) == 2


def test_pauses_grow_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second, twice as long each time, eight at most, less up to a quarter."""
    monkeypatch.undo()
    failure = client._Failure(0, "", {})
    for tries, most in enumerate((0.5, 1.0, 2.0, 4.0, 8.0, 8.0), start=1):
        assert all(0.75 * most <= failure.pause(tries) <= most for _ in range(100))
    assert failure.pause(10_000) <= 8.0


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_proxy_of_the_environment_is_asked_instead(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But not for an address in ``no_proxy``; what a ``.netrc`` holds is sent to neither."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password " + KEY)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with Proxy(echo) as between, Proxy(echo) as server:
        monkeypatch.setenv("http_proxy", scheme + URL(between.url).authority)
        monkeypatch.setenv("no_proxy", "example.org")
        (reply,) = asking(server.url).ask("/x", bodies(1))
        assert reply["path"] == f"{server.url}/x"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        asking(server.url).ask("/x", bodies(1))
    assert [len(one.seen) for one in (between, server)] == [1, 1]
    assert not any("authorization" in one.headers for one in between.seen + server.seen)


@contextmanager
def refusing_proxy() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a proxy that asks for a login, and what it was told."""
    told = []

    def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Awaitable[None]:
        async def talk() -> None:
            told.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()

        return talk()

    with start_blocking_portal(name="proxy") as portal:
        server = portal.call(asyncio.start_server, refuse, "127.0.0.1", 0)
        yield "{}:{}".format(*server.sockets[0].getsockname()), told
        portal.call(server.close)


def test_a_proxy_learns_no_key_and_its_password_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a server behind TLS it is told host and port; and a login that is its own."""
    monkeypatch.setenv("SOME_KEY", KEY)
    with refusing_proxy() as (address, told):
        monkeypatch.setenv("https_proxy", f"http://me:pass-of-mine@{address}")
        asks = asking("https://example.org/v1", key_variable="SOME_KEY", max_retries=0)
        with pytest.raises(NoReply, match="the proxy's status 407") as caught:
            asks.ask("/x", bodies(1))
    assert told[0].startswith(b"CONNECT example.org:443 ") and b"Bearer" not in told[0]
    assert not any("pass-of" in str(one) for one in chain(caught.value))


@pytest.mark.parametrize("given", ["socks5://me:pass@127.0.0.1:1", "http://me:pass@h:99999", ":"])
def test_a_proxy_that_does_not_speak_http_is_told(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent to it, and without its password."""
    monkeypatch.setenv("http_proxy", given)
    with pytest.raises(ParamsError, match="a proxy of the environment: given no usable") as caught:
        asking("http://example.org/v1").ask("/x", bodies(1))
    assert not any("pass" in str(one) for one in chain(caught.value))


@pytest.mark.parametrize("url", ["http://h:99999/v1", "http://h:port/v1", "http://[::1/v1"])
def test_an_address_that_is_none_is_told_before_anything_is_asked(url: str) -> None:
    with pytest.raises(ParamsError, match="url: given no usable address, expected http"):
        asking(url)


def test_a_name_that_no_server_can_have_is_not_asked_for_again() -> None:
    with pytest.raises(NoReply, match=r"http://a\.\.b/v1: .+; expected the address of a server"):
        asking("http://a..b/v1", max_retries=9).ask("/x", bodies(1))


def test_certificates_are_those_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client._trusted.cache_clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    with pytest.raises(ParamsError, match=r"SSL_CERT_FILE: given .*absent\.pem, expected a file"):
        asking("https://127.0.0.1:9/v1").ask("/x", bodies(1))


def test_a_long_header_is_read_and_no_limit_is_a_limit_too() -> None:
    """Gateways send policies of many kilobytes; ``.inf`` seconds wait for ever."""
    with Proxy(lambda path, body: body, [status(200, content_security_policy="x" * 9_000)]) as one:
        assert asking(one.url, timeout_seconds=math.inf, max_retries=0).ask("/x", bodies(1))


def test_no_more_requests_are_under_way_than_allowed() -> None:
    """Four at once, each waiting for three others, and never five."""
    under_way: set[int] = set()
    most: list[int] = []
    four = threading.Barrier(4, timeout=30.0)

    def waiting(path: str, body: Reply) -> Reply:
        under_way.add(body["told"])
        most.append(len(under_way))
        four.wait()
        under_way.discard(body["told"])
        return body

    with Proxy(waiting) as server:
        asks = asking(server.url, concurrency=4, timeout_seconds=60.0)
        replies = asks.ask("/x", bodies(12))
    assert [reply["told"] for reply in replies] == list(range(12))
    assert max(most) <= 4


def test_a_body_names_the_model_unless_it_says_another() -> None:
    """The server's model is the usual one; no body is no request, and needs no server."""
    with Proxy(lambda path, body: body) as server:
        usual, other = asking(server.url).ask("/x", [{}, {"model": "other"}])
    assert (usual, other) == ({"model": "small"}, {"model": "other"})
    assert asking("http://127.0.0.1:9/v1").ask("/x", []) == []


def test_asking_works_inside_a_running_event_loop() -> None:
    """As in a flow, whose tasks run in one."""

    async def flow(url: str) -> list[Reply]:
        return asking(url).ask("/x", bodies(2))

    with Proxy(echo) as server:
        assert [reply["told"] for reply in asyncio.run(flow(server.url))] == [0, 1]


def test_an_interrupt_ends_every_request_and_the_thread() -> None:
    """The connections are closed, so that a server stops working too."""
    gone = threading.Event()

    async def watched(exchange: proxy.Exchange) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await exchange.reader.read()
        gone.set()

    with Proxy(echo, [watched]) as server:
        with pytest.raises(KeyboardInterrupt):
            asking(server.url, timeout_seconds=60.0).ask("/x", bodies(1))
        assert own_threads() == []
        assert gone.wait(30.0)


def test_the_key_comes_from_the_environment_and_goes_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not into errors, not even a server's that says it, nor logs, nor representations."""
    monkeypatch.setenv("SOME_KEY", f" {KEY}\n")
    caplog.set_level(logging.DEBUG)
    told = [status(401, said=f"wrong key {KEY}"), status(429, said=KEY), says(KEY.encode() * 99)]
    escaped = [KEY.replace("/", "\\/"), "".join(f"\\u{ord(c):04X}" for c in KEY)]
    told += [says(text.encode()) for text in escaped]
    for fault in (*told, status(400, said="x" * 270 + KEY)):
        with Proxy(echo, [fault] * 9) as server:
            asks = asking(server.url, key_variable="SOME_KEY")
            with pytest.raises(ProtocolError) as caught:
                asks.ask("/x", bodies(1))
        assert server.seen[0].headers["authorization"] == f"Bearer {KEY}"
        shown = [str(error) + repr(error) + repr(vars(error)) for error in chain(caught.value)]
        shown += [repr(asks), repr(vars(asks)), repr(asks.server), caplog.text]
        assert not any(part in text for text in shown for part in ("sk-v", "of-42", "u0073"))


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that the environment holds for another server either."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, KEY)
    with Proxy(echo) as server:
        asking(server.url).ask("/x", bodies(1))
    (seen,) = server.seen
    assert "authorization" not in seen.headers
    assert not any(KEY in value for value in seen.headers.values())
    assert seen.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("held", [None, "", "two words", "line\nline"])
def test_a_key_that_is_none_is_told_before_anything_is_asked(
    held: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name of its variable."""
    monkeypatch.delenv("SOME_KEY", raising=False)
    if held is not None:
        monkeypatch.setenv("SOME_KEY", held)
    with pytest.raises(ParamsError, match="SOME_KEY") as caught:
        asking("http://127.0.0.1:9/v1", key_variable="SOME_KEY")
    assert not held or held not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "127.0.0.1:9/v1"},
        {"url": f"http://me:{KEY}@127.0.0.1:9/v1"},
        {"url": f"http://127.0.0.1:9/v1?key={KEY}"},
        {"key_variable": KEY},
        {"url": f"http://127.0.0.1:9/v1/ {KEY}"},
        {"key_variable": f"{KEY}="},
    ],
)
def test_settings_of_another_form_are_refused(changed: dict[str, str]) -> None:
    """And are not shown, since a key may stand in the wrong place."""
    with pytest.raises(ValidationError, match=next(iter(changed))) as caught:
        asking(**{"url": "http://127.0.0.1:9/v1", **changed})
    assert KEY not in str(caught.value)


# A whole search over the proxy ------------------------------------------------------------------

DOMAIN = WordProblems()
SAMPLING = Sampling(
    temperature=1.0, max_move_tokens=12, max_solution_tokens=96, max_moves=12, batch_rows=1
)
Results = dict[tuple[str, str], Result[Outcome]]
Solve = Callable[[Sequence[Problem], Proposer], Results]


def writer_of(count: int) -> tuple[list[Problem], Callable[[str, Reply], Reply]]:
    """Problems, and an upstream that solves them with slips, by hash of prompt, seed and choice."""
    rng = random.Random(3)
    drawn = [
        DOMAIN.generate(rng, problem_id=f"p{index}", minimum=3, maximum=4) for index in range(count)
    ]
    known = {
        problem.text: [step.text for step in DOMAIN.solution(problem, truth, rng)]
        for problem, truth in drawn
    }

    def text(body: Reply, number: int) -> str:
        chance = random.Random(f"{body['prompt']} {body['seed']} {number}")
        problem, mark, trace = body["prompt"].partition("?")
        steps = known[problem + mark]
        rest = steps[trace.count(";") :] or steps
        slips = [step if chance.random() < 0.7 else chance.choice(steps) for step in rest]
        return slips[0].removesuffix(" ;") if "stop" in body else " ".join(slips)

    def answer(path: str, body: Reply) -> Reply:
        texts = [text(body, number) for number in range(body.get("n", 1))]
        choices = [
            {"index": at, "text": one, "finish_reason": "stop"} for at, one in enumerate(texts)
        ]
        words = sum(len(one.split()) + ("stop" in body) for one in texts)
        return {"choices": choices, "usage": {"completion_tokens": words}}

    return [problem for problem, _ in drawn], answer


def over(url: str) -> Proposer:
    """The model behind a server."""
    return served.ServedModel(
        asking(url, max_retries=4),
        end_of_move=DOMAIN.end_of_move,
        prompting=lambda state: Prompt((), DOMAIN.serialise(state)),
        prompting_id="text",
        sampling=SAMPLING,
        seed=7,
        api="completions",
    )


def altered(change: Callable[[list[Reply]], object]) -> Fault:
    """A fault of the choices."""
    return rewrites(lambda reply: {**reply, "choices": change(reply["choices"])})


CHOICES: dict[str, Fault] = {
    "choices missing": rewrites(lambda reply: {"usage": reply["usage"]}),
    "no choices": altered(lambda choices: []),
    "choices of another kind": altered(lambda choices: "three"),
    "too few choices": altered(lambda choices: choices[:-1]),
    "duplicate choices": altered(lambda choices: choices[:1] * len(choices) * (len(choices) > 1)),
    "text null": altered(lambda choices: [{**one, "text": None} for one in choices]),
    "text missing": altered(lambda choices: [{"index": one["index"]} for one in choices]),
}
HARMLESS: dict[str, Fault] = {
    "choices out of order": altered(lambda choices: choices[::-1]),
    "too many choices": altered(
        lambda choices: [*choices, {**choices[0], "index": 99}, {**choices[0], "index": 98}]
    ),
    "finish_reason missing": altered(
        lambda choices: [
            {name: told for name, told in one.items() if name != "finish_reason"} for one in choices
        ]
    ),
    "usage missing": rewrites(lambda reply: {"choices": reply["choices"]}),
    "usage of another kind": rewrites(lambda reply: {**reply, "usage": {"completion_tokens": -1}}),
}


@dataclass
class Healthy:
    """The run over a proxy without faults: its problems, results and answered bodies."""

    problems: list[Problem]
    answer: Callable[[str, Reply], Reply]
    results: Results
    bodies: Counter[str]


@pytest.fixture(scope="module")
def healthy(solve: Solve) -> Healthy:
    problems, answer = writer_of(3)
    with Proxy(answer) as server:
        results = solve(problems, over(server.url))
    solved = {name for (_, name), one in results.items() if one.outcome.answer}
    assert solved == {"gated", "majority", "greedy"}
    return Healthy(problems, answer, results, answered(server))


def answered(server: Proxy) -> Counter[str]:
    return Counter(json.dumps(body, sort_keys=True) for body in server.answered)


OF_THE_LINE = FAULTS.keys() - {"429", "hang", "faulty to the caller"}
"""What ``test_a_fault_is_recovered_from`` has, too, and no run sees."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.soak] * (name in OF_THE_LINE))
        for name in [*FAULTS, *CHOICES, *HARMLESS]
    ],
    ids=lambda name: name.replace(" ", "-"),
)
def test_a_run_over_a_faulty_server_has_the_same_outcomes_and_costs(
    name: str, healthy: Healthy, solve: Solve
) -> None:
    """Every second of the first requests meets the fault; nothing is lost or counted twice."""
    fault = ({name: fault for name, (fault, _) in FAULTS.items()} | CHOICES | HARMLESS)[name]
    with Proxy(healthy.answer, [fault, None, fault, None, None, fault, None]) as server:
        assert solve(healthy.problems, over(server.url)) == healthy.results
    if name in HARMLESS:  # such a reply is taken
        assert len(server.seen) == healthy.bodies.total()
    else:
        assert answered(server) == healthy.bodies
        assert len(server.seen) == healthy.bodies.total() + 3


def test_faults_of_all_kinds_at_once(healthy: Healthy, solve: Solve) -> None:
    """In an order drawn by chance."""
    faults = [fault for fault, _ in FAULTS.values()] + list(CHOICES.values())
    quick = [fault for fault in faults if fault not in (proxy.hangs, proxy.drips)]
    rng = random.Random(1)
    script = [rng.choice(quick) if rng.random() < 0.4 else None for _ in range(30)]
    with Proxy(healthy.answer, script, most=1) as server:
        assert solve(healthy.problems, over(server.url)) == healthy.results
    assert answered(server) == healthy.bodies and server.faults_met > 5
