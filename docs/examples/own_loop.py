"""A plain search loop over an OpenAI client: it writes a log, learns a ranker, and asks less.

    python docs/examples/own_loop.py --url http://127.0.0.1:8000/v1 --model NAME

The loop is greedy: at each state it samples steps, verifies, and goes on with the best one. The
first half of the questions verifies every step and records it; the second half verifies what the
ranker picks. ``verify`` is yours; here it knows sums.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Sequence

import openai

import selverify
from selverify.audit.log import RecordedCandidate, RecordedList

STEPS, SAMPLES, ACCEPTED = 8, 8, 0.5
END = "\n\n"


def verify(question: str, steps: Sequence[str]) -> float:
    """The score of the last step: put your reward model here. This one knows the sum."""
    digits = [int(one) for one in re.findall(r"\d", question)]
    total = sum(digits[: len(steps) + 1])
    right = steps[-1].endswith((f"={total}", rf"\boxed{{{sum(digits)}}}."))
    return 0.9 if right else 0.1


def propose(client: openai.OpenAI, model: str, question: str, steps: Sequence[str]) -> list[str]:
    """Distinct next steps."""
    said = "".join(f"{one}{END}" for one in (question, *steps))
    reply = client.completions.create(
        model=model, prompt=said, n=SAMPLES, max_tokens=256, temperature=0.8, stop=[END],
        seed=len(said),
    )  # fmt: skip
    return list(dict.fromkeys(choice.text.strip() for choice in reply.choices))


def search(
    client: openai.OpenAI, model: str, question: str, ranker: selverify.Ranker | None
) -> tuple[list[str], int, list[RecordedList]]:
    """The steps that were taken, the verifier calls, and the lists for a log."""
    steps: list[str] = []
    calls, lists = 0, []
    while len(steps) < STEPS and not (steps and r"\boxed" in steps[-1]):
        texts = propose(client, model, question, steps)
        order, count = list(range(len(texts))), len(texts)
        if ranker is not None:
            plan = ranker.plan(question, steps, texts)
            order, count = list(plan.order), plan.verify
        scores: dict[int, float] = {}
        for place in order[:count]:  # at once, for a log needs every verdict
            scores[place] = verify(question, [*steps, texts[place]])
        calls += len(scores)
        best = max(order[: max(count, 1)], key=lambda place: scores.get(place, 1.0))
        lists.append(
            RecordedList(
                problem_id=question, state_id=f"{question} {len(steps)}", run="loop", model=model,
                question=question, prefix=tuple(steps), committed=best,
                candidates=tuple(
                    RecordedCandidate(text=text, score=scores.get(place))
                    for place, text in enumerate(texts)
                ),
            )
        )  # fmt: skip
        steps.append(texts[best])
    return steps, calls, lists


def main(arguments: Sequence[str] | None = None) -> None:
    """The questions before and after the ranker."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--url", required=True)
    read.add_argument("--model", required=True)
    read.add_argument("--questions", type=int, default=80)
    given = read.parse_args(arguments)
    client = openai.OpenAI(base_url=given.url, api_key="none")
    rng = random.Random(1)
    sums = ("+".join(str(rng.randint(1, 9)) for _ in range(4)) for _ in range(given.questions))
    questions = list(dict.fromkeys(f"What is {one}?" for one in sums))
    half = len(questions) // 2
    log, ranker = [], None
    for name, part in (("every step", questions[:half]), ("the ranker's", questions[half:])):
        calls, right = 0, 0
        for question in part:
            steps, own, lists = search(client, given.model, question, ranker)
            calls, log = calls + own, [*log, *lists]
            total = sum(int(one) for one in re.findall(r"\d", question))
            right += steps[-1].endswith(rf"\boxed{{{total}}}.")
        print(f"{name}: {right} of {len(part)} right, {calls / len(part):.1f} calls a question")
        if ranker is None:
            ranker = selverify.Ranker.train(log, encoder="free")
            print(ranker.described.savings)


if __name__ == "__main__":
    main()
