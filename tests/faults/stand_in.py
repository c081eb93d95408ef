"""Models behind HTTP for a whole pipeline: a writer, an embedder and a judge, each by hash.

They add digits step by step and err at times. A reply follows from its request alone, so a run that
was disturbed can be compared with one that was not, request by request.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selverify.domains.math_steps import MathSteps
from selverify.params import Sampling, Server

if TYPE_CHECKING:
    from selverify.models.generators.served import ServedModel
    from selverify.models.verifiers.judge import Judge

Reply = dict[str, Any]

NOWHERE: dict[str, Any] = {
    "url": "http://127.0.0.1:9/v1",
    "model": "small",
    "key_variable": None,
    "concurrency": 1,
    "timeout_seconds": 1.0,
    "max_retries": 0,
}
"""Settings of a server that nobody asks."""
WIDTH = 8
MISREAD = 0.25
QUESTION = re.compile(r"What is (\d(?:\+\d)+)\?")
STEP = re.compile(r"^\d+\+\d=(\d+)$", re.MULTILINE)


def write_questions(path: Path, *, count: int, seed: int) -> None:
    """Questions and answers as JSON lines, all different."""
    rng = random.Random(seed)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        found[tuple(rng.randint(1, 9) for _ in range(3))] = None
    lines = [
        json.dumps({"question": f"What is {'+'.join(map(str, one))}?", "answer": str(sum(one))})
        for one in found
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def served(
    url: str, sampling: Sampling, *, concurrency: int, seconds: float, retries: int
) -> tuple[ServedModel, Judge]:
    """The writer and the judge at ``url``, with as many requests under way of each."""
    from selverify.models.generators.client import Client
    from selverify.models.generators.served import ServedModel
    from selverify.models.prompting import Prompt
    from selverify.models.verifiers.judge import Judge, load_rubric

    settings = Server(
        url=url,
        model="stand-in",
        key_variable=None,
        concurrency=concurrency,
        timeout_seconds=seconds,
        max_retries=retries,
    )
    end = MathSteps.end_of_move
    writer = ServedModel(
        Client(settings),
        end_of_move=end,
        prompting=lambda state: Prompt((), MathSteps().serialise(state) + end),
        prompting_id="text",
        sampling=sampling,
        seed=7,
        api="completions",
    )
    return writer, Judge(
        Client(settings), model="stand-in", rubric=load_rubric(), max_tokens=50, schema=False
    )


def answer(path: str, body: Reply) -> Reply:
    """The reply of whichever of the three is asked."""
    if path.endswith("/embeddings"):
        return {"data": [_embedding(index, text) for index, text in enumerate(body["input"])]}
    if path.endswith("/chat/completions"):
        return _opinion(body["messages"][-1]["content"])
    texts = [_written(body, number) for number in range(body.get("n", 1))]
    choices = [
        {"index": number, "text": text, "finish_reason": "stop"}
        for number, text in enumerate(texts)
    ]
    return {"choices": choices, "usage": {"completion_tokens": sum(map(len, texts))}}


def _embedding(index: int, text: str) -> Reply:
    rng = random.Random(text)
    return {"index": index, "embedding": [rng.gauss(0.0, 1.0) for _ in range(WIDTH)]}


def _opinion(asked: str) -> Reply:
    """Right in most cases: every tenth step is judged wrongly, by hash."""
    digits = _digits(asked)
    steps = STEP.findall(asked)
    right = bool(digits) and all(
        int(total) == sum(digits[: place + 2]) for place, total in enumerate(steps)
    )
    right ^= random.Random(asked).random() < 0.1
    verdict = {"reason": "", "verdict": "right" if right else "wrong", "confidence": 80}
    return {"choices": [{"message": {"content": json.dumps(verdict)}}]}


def _written(body: Reply, number: int) -> str:
    rng = random.Random(f"{body['prompt']} {body.get('seed')} {body['temperature']} {number}")
    digits = _digits(body["prompt"])
    done = [int(total) for total in STEP.findall(body["prompt"])]
    total = done[-1] if done else digits[0]
    steps = []
    for digit in digits[len(done) + 1 :]:
        read = rng.randint(1, 9) if rng.random() < MISREAD else digit
        claimed = total + read + (rng.random() < MISREAD / 4)  # a gate sees this one
        steps.append(f"{total}+{read}={claimed}")
        total = claimed
    steps.append(f"The answer is \\boxed{{{total}}}.")
    return steps[0] if "stop" in body else "\n\n".join(steps)


def _digits(text: str) -> list[int]:
    found = QUESTION.search(text)
    return [int(digit) for digit in found.group(1).split("+")] if found else []
