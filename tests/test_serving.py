"""The proxy as an OpenAI client sees it."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import uvicorn
import yaml
from fastapi.testclient import TestClient
from test_solving import ANSWERS, QUESTIONS, _seeded, generate, score  # noqa: F401
from typer.testing import CliRunner

from selverify import cli
from selverify.errors import NoReply
from selverify.serving import LEFT_SECONDS, MOST_BYTES, Limits, proxy
from selverify.solving import Solver, SolveSettings

ROOT = Path(__file__).parents[1]


@contextmanager
def served(
    generator: Callable[..., list[str]] = generate,
    *,
    limits: Limits | None = None,
    concurrency: int = 4,
) -> Iterator[str]:
    """The address of a proxy in front of functions."""
    settings = SolveSettings(concurrency=concurrency)
    solver = Solver(generator=generator, verifier=score, settings=settings)
    app = proxy(solver, model="sums", limits=limits or Limits())
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as address:
        yield address


def client(url: str, **changed: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=url, api_key="none", **{"max_retries": 0, **changed})


def ask(url: str, question: str, *, retries: int = 0, **more: Any) -> Any:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    asks = client(url, max_retries=retries)
    return asks.chat.completions.create(model="sums", messages=messages, **more)


def test_a_client_gets_a_search_by_its_address(url: str) -> None:
    """The steps as the message, the calls in the usage; a temperature is passed over."""
    for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
        told = ask(url, question, temperature=0.3, extra_body={"selverify": {"calls": 12}})
        assert told.choices[0].message.content.endswith(rf"\boxed{{{answer}}}.")
        assert told.choices[0].finish_reason == "stop"
        assert told.selverify == {"answer": answer, "reason": "answered", "unaccepted": []}
        usage = told.usage
        assert 0 < usage.verifier_calls <= 12
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert [one.id for one in client(url).models.list()] == ["sums"]


def test_the_method_and_the_calls_are_the_clients(url: str) -> None:
    told = ask(url, QUESTIONS[0], extra_body={"selverify": {"method": "majority", "calls": 5}})
    assert told.usage.verifier_calls == 0
    told = ask(url, QUESTIONS[0], extra_body={"selverify": {"method": "best_of_n", "calls": 5}})
    assert 0 < told.usage.verifier_calls <= 5


def test_a_search_without_an_answer_says_that_it_was_cut_short() -> None:
    """As a client knows it of samples that are too long."""
    with served(generator=lambda question, steps, n: ["So we go on."] * n) as address:
        told = ask(address, QUESTIONS[0], extra_body={"selverify": {"calls": 2}})
    assert told.choices[0].finish_reason == "length"
    assert told.selverify["answer"] is None


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ("serve", "--model", "a", "--url", "http://127.0.0.1:9/v1", "--port", str(port))
        ended = CliRunner().invoke(cli.app, command)
    assert ended.exit_code != 0 and "searches with" not in ended.output
    assert f"--port: given {port} (" in str(ended.output) + str(ended.exception)


def test_the_final_text_is_streamed_step_by_step(url: str) -> None:
    chunks = list(ask(url, QUESTIONS[1], stream=True, stream_options={"include_usage": True}))
    said = [one.choices[0].delta.content or "" for one in chunks if one.choices]
    assert len(said) == 1 + 3 + 1  # the role, three steps, the end
    assert "".join(said).endswith(r"\boxed{17}.")
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.verifier_calls > 0
    assert len({one.id for one in chunks}) == 1


def test_what_is_null_or_was_said_before_has_no_effect(url: str) -> None:
    tool = {"role": "assistant", "content": None, "tool_calls": []}
    body = {"model": "sums", "n": None, "stream": None, "stream_options": None, "selverify": None}
    messages = [tool, {"role": "user", "content": QUESTIONS[0]}]
    reply = httpx2.post(f"{url}/chat/completions", json={**body, "messages": messages})
    assert reply.status_code == 200, reply.text
    assert reply.json()["selverify"]["answer"] == ANSWERS[0]


def test_without_a_verifier_it_votes() -> None:
    solver = Solver(generator=generate)
    assert solver.usual_method == "majority"
    (solved,) = solver.solve_many(QUESTIONS[:1], calls=9)
    assert solved.verifier_calls == 0 and solved.answer


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": []}, "messages: "),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last is of 'assistant'"),
        ({"messages": [{"role": "user", "content": ""}]}, "given a problem of 0 characters"),
        ({"messages": ["x"]}, "of the last, expected an object with role and content"),
        ({"messages": [{"role": 1, "content": "x"}]}, "of the last, role: expected a text"),
        *(
            ({"messages": [{"role": "user", "content": one}]}, "expected a text or text parts only")
            for one in (None, 3, [{"type": "text", "text": "x"}, {"type": "image_url"}])
        ),
        ({"selverify": {"calls": 0}}, "selverify.calls: "),
        ({"selverify": {"budget": 3}}, "selverify.budget: "),
        ({"selverify": {"method": "magic"}}, "given 'magic', expected one of cot"),
        ({"n": 2}, "n: "),
        ({"selverify": {"method": "magic"}, "stream": True}, "given 'magic', expected one of cot"),
    ],
)
def test_a_wrong_request_is_one_sentence(url: str, body: dict[str, object], message: str) -> None:
    whole = {"model": "sums", "messages": [{"role": "user", "content": QUESTIONS[0]}], **body}
    reply = httpx2.post(f"{url}/chat/completions", json=whole)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert message in error["message"] and error["type"] == "invalid_request_error"


def test_too_many_are_told_to_come_again() -> None:
    """And are answered when they do."""
    hold = threading.Event()

    def slow(question: str, steps: list[str], n: int) -> list[str]:
        hold.wait(20)
        return generate(question, steps, n)

    found: list[Any] = []
    with served(slow, limits=Limits(running=1, waiting=1)) as url:
        threads = [
            threading.Thread(target=lambda: found.append(ask(url, QUESTIONS[0], retries=20)))
            for _ in range(3)
        ]
        for one in threads:
            one.start()
        until = time.monotonic() + 10
        refused: openai.RateLimitError | None = None
        while refused is None and time.monotonic() < until:
            try:
                client(url, timeout=0.5).chat.completions.create(
                    model="sums", messages=[{"role": "user", "content": QUESTIONS[0]}]
                )
            except openai.RateLimitError as error:
                refused = error
            except openai.APITimeoutError:
                continue
        hold.set()
        for one in threads:
            one.join(60)
    assert refused is not None and refused.response.headers["retry-after"] == "1"
    assert len(found) == 3


def test_what_takes_too_long_or_fails_behind_us_has_a_status() -> None:
    def sleepy(question: str, steps: list[str], n: int) -> list[str]:
        time.sleep(1.0)
        return generate(question, steps, n)

    with (
        served(sleepy, limits=Limits(seconds=0.2)) as url,
        pytest.raises(openai.InternalServerError, match=r"no answer within 0\.2 s"),
    ):
        ask(url, QUESTIONS[0])

    def broken(question: str, steps: list[str], n: int) -> list[str]:
        raise NoReply("http://model: no reply")

    with served(broken) as url:
        with pytest.raises(openai.InternalServerError, match="http://model: no reply") as caught:
            ask(url, QUESTIONS[0])
        assert caught.value.status_code == 502
        reply = httpx2.post(
            f"{url}/chat/completions",
            json={
                "model": "sums",
                "messages": [{"role": "user", "content": QUESTIONS[0]}],
                "stream": True,
            },
        )
        assert json.loads(reply.text.removeprefix("data: "))["error"]["code"] == 502


@pytest.mark.parametrize(("concurrency", "expected"), [(0, 1), (2, 2)])
def test_searches_side_by_side_are_under_one_limit(concurrency: int, expected: int) -> None:
    """Functions that may not run in threads answer one search at a time."""
    inside, most = Counter[str](), 0
    counting = threading.Lock()

    def counted(question: str, steps: list[str], n: int) -> list[str]:
        nonlocal most
        with counting:
            inside.update(["now"])
            most = max(most, inside["now"])
        time.sleep(0.01)
        with counting:
            inside.subtract(["now"])
        return generate(question, steps, n)

    with served(counted, concurrency=concurrency) as url:
        threads = [threading.Thread(target=ask, args=(url, QUESTIONS[0])) for _ in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(20)
    assert most == expected


def test_a_server_ends_without_the_searches_that_outlived_their_clients() -> None:
    """What is asked for is not waited for."""
    asked, hold = threading.Event(), threading.Event()

    def slow(question: str, steps: list[str], n: int) -> list[str]:
        asked.set()
        hold.wait(60)
        return generate(question, steps, n)

    with served(slow, limits=Limits(seconds=0.2)) as url:
        with pytest.raises(openai.InternalServerError, match="no answer within"):
            ask(url, QUESTIONS[0])
        assert asked.is_set()
    hold.set()


def test_an_application_that_nothing_began_answers() -> None:
    """As part of another one."""
    solver = Solver(generator=generate, verifier=score, settings=SolveSettings(concurrency=2))
    client = TestClient(proxy(solver, model="sums"), base_url="http://localhost:8800")
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    reply = client.post("/v1/chat/completions", json={"model": "sums", "messages": messages})
    assert reply.status_code == 200 and reply.json()["selverify"]["answer"] == ANSWERS[0]


@pytest.mark.parametrize("stream", [False, True])
def test_a_search_that_waits_is_dropped_where_its_client_has_left(stream: bool) -> None:
    """One that runs goes on."""
    begun, hold = Counter[str](), threading.Event()

    def slow(question: str, steps: list[str], n: int) -> list[str]:
        begun[question] += 1
        hold.wait(60)
        return generate(question, steps, n)

    with served(slow, limits=Limits(running=1, waiting=1)) as url:
        for question in QUESTIONS[:2]:
            with pytest.raises(openai.APITimeoutError):
                list(ask(url, question, stream=stream, timeout=0.3) or ())
        time.sleep(4 * LEFT_SECONDS)
        assert begun == {QUESTIONS[0]: 1}
        hold.set()
        assert ask(url, QUESTIONS[2]).selverify["answer"] == ANSWERS[2]
    assert set(begun) == {QUESTIONS[0], QUESTIONS[2]}


def test_the_error_of_a_client_that_left_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It may quote the question."""
    hold = threading.Event()

    def failing(question: str, steps: list[str], n: int) -> list[str]:
        hold.wait(60)
        raise RuntimeError(f"failed on {question}")

    with served(failing, limits=Limits(running=1)) as url:
        with pytest.raises(openai.APITimeoutError):
            list(ask(url, "a secret?", stream=True, timeout=0.3))
        hold.set()
        with pytest.raises(openai.InternalServerError, match="failed on"):
            ask(url, "another?")
        gc.collect()
        assert [one.id for one in client(url).models.list()] == ["sums"]
    assert "secret" not in caplog.text


def test_other_names_of_the_address_are_refused(url: str) -> None:
    """A page in a browser can name a host of its own."""
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    asked = {"model": "sums", "messages": messages}
    for path in ("/chat/completions", "/models"):
        told = httpx2.request(
            "POST" if "chat" in path else "GET",
            f"{url}{path}",
            json=asked,
            headers={"Host": "evil.example:8800", "Origin": "http://evil.example"},
        )
        assert told.status_code == 400
        expected = "the header Host: expected a name of this server (--host-name)"
        assert told.json()["error"]["message"] == expected
    port = httpx2.URL(url).port
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert httpx2.get(f"{url}/models", headers={"Host": host}).status_code == 200
    solver = Solver(generator=generate, verifier=score)
    own = TestClient(proxy(solver, model="m", hosts=["sums.example"]), "http://sums.example")
    assert own.get("/v1/models").status_code == 200


def test_what_cannot_be_served_is_an_error_as_the_endpoint_has_them(url: str) -> None:
    assert httpx2.get(f"{url}/chat/completions").headers["Allow"] == "POST"
    for told in (
        httpx2.get(f"{url}/chat/completions"),
        httpx2.get(f"{url}/nothing"),
        httpx2.post(f"{url}/chat/completions", content=b"[" * 100_000),
        httpx2.post(
            f"{url}/chat/completions", content=b"\xff", headers={"Content-Type": "application/json"}
        ),
    ):
        assert told.status_code in (400, 404, 405) and told.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b'{"model": "a",,}', "application/json", "the body: no JSON at character 14: "),
        (b"{}", "application/x-www-form-urlencoded", "without Content-Type: application/json"),
        (b"{}", "text/plain", "without Content-Type: application/json"),
        (b"{}", None, "without Content-Type: application/json"),
        (b"[1]", "application/json", "the body: given no JSON object, expected one with model"),
        (b"null", "application/json", "the body: given no JSON object, expected one with model"),
        (b"", None, "the body: given no JSON object, expected one with model"),
    ],
)
def test_a_body_that_is_no_request_is_one_sentence(
    url: str, content: bytes, kind: str | None, message: str
) -> None:
    """A page in a browser may send plain text unasked, so the type is one that it may not."""
    headers = {} if kind is None else {"Content-Type": kind}
    reply = httpx2.post(f"{url}/chat/completions", content=content, headers=headers)
    assert reply.status_code == 400 and message in reply.json()["error"]["message"], reply.text


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_refused_while_it_is_read(url: str, chunked: bool) -> None:
    """Whether its length is said beforehand or not; the server then answers as before."""
    whole = b'{"model": "' + b"a" * MOST_BYTES + b'"}'
    content = (whole[at : at + 65536] for at in range(0, len(whole), 65536)) if chunked else whole
    refused = httpx2.post(f"{url}/chat/completions", content=content)
    assert refused.status_code == 413
    expected = f"the body: expected at most {MOST_BYTES} bytes"
    assert refused.json()["error"]["message"] == expected
    assert [one.id for one in client(url).models.list()] == ["sums"]


def test_half_of_a_surrogate_pair_in_an_error_is_sent_as_a_question_mark() -> None:
    def failing(question: str, steps: list[str], n: int) -> list[str]:
        raise RuntimeError("half \ud83d")

    with (
        served(failing) as url,
        pytest.raises(openai.InternalServerError, match=r"half \?") as told,
    ):
        ask(url, QUESTIONS[0])
    assert told.value.status_code == 502


def test_a_search_that_fails_leaves_the_others_to_end() -> None:
    """Their requests are in one event loop."""

    def uneven(question: str, steps: list[str], n: int) -> list[str]:
        if question == QUESTIONS[0]:
            raise NoReply("http://model: no reply")
        time.sleep(0.01)
        return generate(question, steps, n)

    found: list[str] = []
    with served(uneven) as url:
        others = [
            threading.Thread(
                target=lambda: found.append(ask(url, QUESTIONS[1]).selverify["answer"])
            )
            for _ in range(3)
        ]
        for one in others:
            one.start()
        for _ in range(5):
            with pytest.raises(openai.InternalServerError, match="http://model: no reply"):
                ask(url, QUESTIONS[0])
        for one in others:
            one.join(20)
    assert found == [ANSWERS[1]] * 3


def test_the_documented_verifier_is_one() -> None:
    given = yaml.safe_load((ROOT / "docs" / "examples" / "verifier.yaml").read_text())
    assert Solver(generator=generate, verifier=given).usual_method == "gates_only"


def test_the_command_says_what_is_wrong_before_it_serves(tmp_path: Path) -> None:
    wrong = tmp_path / "verifier.yaml"
    wrong.write_text("- 1\n")
    given = ["serve", "--model", "m", "--url", "http://127.0.0.1:9/v1"]
    for more, message in (
        (["--verifier", str(wrong)], "expected the settings of a verifier"),
        (["--ranker", str(tmp_path)], "expected a ranker"),
        (["--verifier", str(tmp_path / "none.yaml")], "No such file"),
        (["--key-variable", "NO_SUCH_KEY"], "NO_SUCH_KEY holds nothing"),
    ):
        ended = CliRunner().invoke(cli.app, [*given, *more])
        assert ended.exit_code == 1 and message in ended.stderr, ended.output
