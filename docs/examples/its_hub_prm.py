"""its_hub's beam search with fewer calls of its process reward model.

    pip install its_hub==1.2.0 && python docs/examples/its_hub_prm.py

``RankedPRM`` stands before any reward model of its_hub: of the steps that follow the same text it
scores those that a ranker of yours (``selverify train LOG -o ranker/``) picks, each text once. The
others rank below all that were scored, but for one that the ranker would commit without a call. The
writer and the reward model below are a few lines each, and the ranker can see for itself whether an
addition holds: yours will save less.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

from its_hub.api import AbstractLanguageModel, AbstractProcessRewardModel, ChatMessage
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.lms.step_generation import StepGeneration

import selverify
from selverify.audit.log import RecordedCandidate, RecordedList

END = "\n"


class RankedPRM(AbstractProcessRewardModel):
    """``prm`` behind ``ranker``. ``separator`` stands between two steps of a text."""

    def __init__(
        self, prm: AbstractProcessRewardModel, ranker: selverify.Ranker, separator: str = END
    ) -> None:
        self._prm, self._ranker, self._separator = prm, ranker, separator

    async def ascore(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
        """A score a text; at most 0 for one that was not scored, unless it is committed so."""
        questions = [str(prompt_or_messages)] * len(steps)
        picked = self._ranker.pick(questions, steps, separator=self._separator)
        chosen = [steps[place] for place in picked.places]
        found = await self._prm.ascore(prompt_or_messages, chosen) if chosen else []
        return picked.fill(found, float)

    def score(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
        """The same."""
        return asyncio.run(self.ascore(prompt_or_messages, steps))


class Adder(AbstractLanguageModel):
    """A writer that adds the numbers of a question one by one, and errs six times in ten."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    async def agenerate(self, messages: Any, stop: str | None = None, **_: Any) -> Any:
        if isinstance(messages[0], ChatMessage):
            return await self.agenerate_single(messages, stop)
        return [await self.agenerate_single(one, stop) for one in messages]

    async def agenerate_single(self, messages: Any, stop: str | None = None, **_: Any) -> Any:
        digits = [int(one) for one in re.findall(r"\d+", messages[0].content)]
        said = messages[1].content.strip().split(END) if len(messages) > 1 else []
        total = int(said[-1].rstrip(".").split("= ")[-1]) if said else digits[0]
        if len(said) + 1 == len(digits):
            return {"role": "assistant", "content": f"The answer is = {total}."}
        digit = digits[len(said) + 1]
        wrong = 0 if self._rng.random() < 0.4 else self._rng.randint(1, 5)
        return {"role": "assistant", "content": f"So {total} + {digit} = {total + digit + wrong}."}


class Checker(AbstractProcessRewardModel):
    """A reward model that sees whether every addition holds; ``calls`` counts the texts."""

    def __init__(self) -> None:
        self.calls = 0

    async def ascore(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
        self.calls += len(steps)
        return [0.9 if holds(text) else 0.1 for text in steps]

    def score(self, prompt_or_messages: Any, steps: list[str]) -> list[float]:
        return asyncio.run(self.ascore(prompt_or_messages, steps))


def holds(text: str) -> bool:
    """Whether all additions in ``text`` are right."""
    found = re.findall(r"So (\d+) \+ (\d+) = (\d+)", text)
    return all(int(a) + int(b) == int(c) for a, b, c in found)


def recorded(count: int) -> list[RecordedList]:
    """A log of ``count`` questions: what the writer proposed, and what the checker said."""
    writer, checker, rng, found = Adder(1), Checker(), random.Random(2), []
    for number in range(count):
        question = "What is " + " + ".join(str(rng.randint(2, 9)) for _ in range(4)) + "?"
        said: list[str] = []
        for state in range(3):
            messages = [ChatMessage(role="user", content=question)]
            if said:
                messages.append(ChatMessage(role="assistant", content=END.join(said)))
            replies = [asyncio.run(writer.agenerate_single(messages)) for _ in range(6)]
            texts = list(dict.fromkeys(reply["content"] for reply in replies))
            scores = checker.score(question, texts)
            candidates = [
                RecordedCandidate(text=text, score=score)
                for text, score in zip(texts, scores, strict=True)
            ]
            found.append(
                RecordedList(
                    problem_id=f"q{number}", state_id=f"q{number}-{state}", run="log",
                    model="adder", question=question, prefix=tuple(said),
                    candidates=tuple(candidates),
                )
            )  # fmt: skip
            said.append(next((text for text in texts if holds(text)), texts[0]))
    return found


def search(prm: AbstractProcessRewardModel, questions: list[str]) -> list[str]:
    """its_hub's beam search on each question; the texts that it chose."""
    steps = StepGeneration(max_steps=5, step_token=END, stop_token="answer")
    beam = BeamSearch(steps, prm, beam_width=2)
    return [
        asyncio.run(beam.ainfer(Adder(number), question, budget=12))["content"]
        for number, question in enumerate(questions)
    ]


def main() -> None:
    """The same searches before and after."""
    ranker = selverify.Ranker.train(recorded(60), encoder="free", source="its_hub's own log")
    rng = random.Random(3)
    questions = [
        "What is " + " + ".join(str(rng.randint(2, 9)) for _ in range(4)) + "?" for _ in range(20)
    ]
    before, after = Checker(), Checker()
    for name, checker, prm in (
        ("before", before, before),
        ("after", after, RankedPRM(after, ranker)),
    ):
        texts = search(prm, questions)
        right = sum(holds(text) for text in texts)
        print(f"{name}: {right} of {len(questions)} right, {checker.calls} calls")


if __name__ == "__main__":
    main()
