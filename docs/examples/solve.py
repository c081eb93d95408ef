"""A search with a generator and a verifier of one's own, by several methods.

    python docs/examples/solve.py

Put your model into ``generate`` and your reward model into ``score``; a name of the hub or the
settings of a server do as well (docs/own-system.md). These know sums, and err in a quarter of the
steps.
"""

from __future__ import annotations

import random
import re

import selverify

RNG = random.Random(3)
QUESTIONS = [f"What is {'+'.join(str(RNG.randint(1, 9)) for _ in range(4))}?" for _ in range(20)]


def digits_of(question: str) -> list[int]:
    """The numbers to add."""
    return [int(one) for one in re.findall(r"\d", question)]


def generate(question: str, steps: list[str], n: int) -> list[str]:
    """``n`` next steps after ``steps``; an answer ends a solution."""
    digits = digits_of(question)
    total = int(steps[-1].split("=")[-1]) if steps else digits[0]
    if len(steps) + 1 == len(digits):
        return [rf"The answer is \boxed{{{total}}}."] * n
    sums = [total + digits[len(steps) + 1] + RNG.choice([0, 0, 0, 1]) for _ in range(n)]
    return [f"{total} + {digits[len(steps) + 1]} ={one}" for one in sums]


def score(question: str, steps: list[str]) -> list[float]:
    """Of each step in [0, 1]: whether it is right, and all before it."""
    digits, scores, right = digits_of(question), [], True
    for place, step in enumerate(steps):
        total = sum(digits[: place + 2])
        right &= step.endswith((f"={total}", rf"\boxed{{{sum(digits)}}}."))
        scores.append(0.9 if right else 0.1)
    return scores


def main() -> None:
    """Accuracy and calls of three methods."""
    for method, calls in (("majority", 16), ("best_of_n", 16), ("gates_only", 16)):
        solved = selverify.solve_many(
            QUESTIONS, generator=generate, verifier=score, method=method, calls=calls, gates=False
        )
        right = sum(
            one.answer == str(sum(digits_of(question)))
            for question, one in zip(QUESTIONS, solved, strict=True)
        )
        made = sum(one.verifier_calls for one in solved)
        print(f"{method}: {right} of {len(QUESTIONS)} right, {made} verifier calls")


if __name__ == "__main__":
    main()
