"""``make peers``: its_hub's searches on the same questions, generator and verifier as ours.

Needs ``pip install its_hub==1.2.0`` and the trained policy of a run. Its best-of-N, beam search and
particle filtering run behind its own interfaces; all problems at once, so that its batches are as
large as ours. Calls and step scores are counted where the verifier is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from its_hub.api import (
    AbstractLanguageModel,
    AbstractOutcomeRewardModel,
    AbstractProcessRewardModel,
    ChatMessage,
)
from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.bon import BestOfN
from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
from its_hub.core.lms.step_generation import StepGeneration

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.policy import TrainedPolicy, load_policy
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Verify,
    VerifyItem,
)
from selverify.types import Move, State
from tasks.artifacts import read_tasks

END = "Answer"
"""What a last line begins with."""
_Asked = tuple[Any, asyncio.Future[Any]]


@dataclass
class Bench:
    """The policy's models behind one queue, and what has been asked of them.

    Requests of all problems that wait are answered together, once none of them can go on.
    """

    policy: TrainedPolicy
    tasks: dict[str, Task]
    aggregation: str
    drawn: Counter[tuple[str, ...]] = field(default_factory=Counter)
    waiting: list[_Asked] = field(default_factory=list)
    calls: int = 0
    step_scores: int = 0
    tokens: int = 0

    async def ask(self, item: Any) -> Any:
        """The reply to an item of a request of ours."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((item, future))
        return await future

    async def answer_all(self, work: Sequence[Coroutine[Any, Any, str]]) -> list[str]:
        """Run searches to their end."""
        running = asyncio.gather(*work)
        while not running.done():
            before = -1
            while len(self.waiting) != before:  # until no search has anything more to ask
                before = len(self.waiting)
                for _ in range(20):
                    await asyncio.sleep(0)
            self._answer()
        return list(await running)

    def _answer(self) -> None:
        asked, self.waiting = self.waiting, []
        kinds = ((CompleteItem, Complete), (ProposeItem, Propose), (VerifyItem, Verify))
        for kind, request in kinds:
            some = [(item, future) for item, future in asked if isinstance(item, kind)]
            if not some:
                continue
            replies = self.policy.backend.answer(request(tuple(item for item, _ in some)))
            for (item, future), reply in zip(some, replies, strict=True):
                if isinstance(item, VerifyItem):
                    self.calls += 1
                    self.step_scores += len(item.steps)
                else:
                    self.tokens += sum(sample.tokens for sample in reply)
                future.set_result(reply)

    def state(self, question: str, said: str) -> tuple[State, tuple[Move, ...]] | None:
        """The problem's first state and the moves of a text; None where one is no move."""
        domain = self.policy.domain
        state = domain.initial_state(self.tasks[question].problem, budget=1)
        moves = []
        for line in said.split(domain.end_of_move):
            if line.strip():
                move = domain.parse(line)
                if not isinstance(move, Move):
                    return None
                moves.append(move)
        return state, tuple(moves)

    def start(self, *key: str, count: int) -> int:
        """How many samples were drawn at a place before these."""
        self.drawn[key] += count
        return self.drawn[key] - count


class Model(AbstractLanguageModel):
    """The generator: the next line after those so far, or a whole solution without ``stop``."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def agenerate(
        self, messages: Any, stop: str | None = None, **_: Any
    ) -> dict[str, str] | list[dict[str, str]]:
        if messages and isinstance(messages[0], ChatMessage):
            return await self.agenerate_single(messages, stop)
        return list(await asyncio.gather(*(self.agenerate_single(one, stop) for one in messages)))

    async def agenerate_single(
        self, messages: list[ChatMessage], stop: str | None = None, **_: Any
    ) -> dict[str, str]:
        question = messages[0].content
        said = messages[1].content if len(messages) > 1 else ""
        read = self._bench.state(question, said)
        if read is None:
            return {"role": "assistant", "content": END}
        state, moves = read
        for move in moves:
            state = self._bench.policy.domain.apply(state, move)
        start = self._bench.start(question, said, str(stop), count=1)
        kind = CompleteItem if stop is None else ProposeItem
        (sample,) = await self._bench.ask(kind(state, start, 1))
        return {"role": "assistant", "content": sample.text.strip()}


class Scores(AbstractProcessRewardModel, AbstractOutcomeRewardModel):
    """The verifier: the aggregated scores of a text's steps; 0 for one that is no derivation."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def score(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("only ascore is asked")

    async def ascore(self, asked: Any, steps: Any = None, **_: Any) -> list[float]:
        """Of texts after a question, or of whole conversations."""
        if steps is None:
            pairs = [(one[0].content, one[-1].content) for one in asked]
        else:
            pairs = [(asked, text) for text in steps]
        return list(await asyncio.gather(*(self._one(*pair) for pair in pairs)))

    async def _one(self, question: str, said: str) -> float:
        read = self._bench.state(question, said)
        if read is None or not read[1]:
            return 0.0
        verdict = await self._bench.ask(VerifyItem(*read))
        return AGGREGATIONS[self._bench.aggregation](verdict.step_scores)


def main() -> None:
    """Measure and print a table."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--policy", type=Path, required=True)
    read.add_argument("--benchmark", type=Path, default=Path("data/benchmark"))
    read.add_argument("--problems", type=int, default=100)
    read.add_argument("--budgets", type=int, nargs="+", default=[4, 16])
    read.add_argument("--width", type=int, default=4)
    read.add_argument("--aggregation", default="prod")
    given = read.parse_args()
    logging.disable(logging.INFO)
    policy = load_policy(given.policy)
    tasks = read_tasks(given.benchmark, "test", limit=given.problems)
    by_text = {task.problem.text: task for task in tasks}
    steps = policy.policy_settings.sampling.max_moves
    line = StepGeneration(max_steps=steps, step_token="\n", stop_token=END)
    print("| Method | N | Right | Calls | Step scores | Tokens | Seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with Grader(seconds=5.0, workers=1) as grader:

        def shown(
            name: str, budget: int, run: Callable[[], tuple[list[str | None], Bench]]
        ) -> None:
            began = time.perf_counter()
            answers, bench = run()
            seconds = time.perf_counter() - began
            right = sum(
                grader.matches(task.truth.answer, answer)
                for task, answer in zip(tasks, answers, strict=True)
            )
            counts = (bench.calls, bench.step_scores, bench.tokens)
            each = " | ".join(f"{count / len(tasks):.1f}" for count in counts)
            print(
                f"| {name} | {budget} | {right / len(tasks):.1%} | {each} | {seconds:.0f} |",
                flush=True,
            )

        for budget in given.budgets:
            width = min(given.width, budget)
            methods: dict[str, Callable[[Scores], Any]] = {
                "its_hub best-of-N": BestOfN,
                "its_hub beam search": lambda prm, w=width: BeamSearch(line, prm, beam_width=w),
                "its_hub particle filtering": lambda prm: ParticleFiltering(line, prm),
            }
            for name, build in methods.items():
                bench = Bench(policy, by_text, given.aggregation)
                shown(name, budget, lambda m=build, b=bench, n=budget: theirs(m, b, n))
            bench = Bench(policy, by_text, given.aggregation)
            shown("selverify, full", budget, lambda b=bench, n=budget: ours(b, n))


def theirs(
    build: Callable[[Scores], Any], bench: Bench, budget: int
) -> tuple[list[str | None], Bench]:
    """The answers of one of its algorithms."""
    random.seed(0)
    algorithm, model = build(Scores(bench)), Model(bench)

    async def one(question: str) -> str:
        found = await algorithm.ainfer(model, question, budget, return_response_only=False)
        return str(found.the_one["content"])

    texts = asyncio.run(_all(bench, [one(question) for question in bench.tasks]))
    answers = []
    for question, text in zip(bench.tasks, texts, strict=True):
        read = bench.state(question, text)
        state, moves = read if read is not None else (None, ())
        for move in moves:
            state = bench.policy.domain.apply(state, move)
            if bench.policy.domain.is_final(state):
                break
        answers.append(None if state is None else bench.policy.domain.answer(state))
    return answers, bench


async def _all(bench: Bench, work: Sequence[Coroutine[Any, Any, str]]) -> list[str]:
    return await bench.answer_all(work)


def ours(bench: Bench, budget: int) -> tuple[list[str | None], Bench]:
    """The answers of the trained policy."""
    solved = bench.policy.solve_many([task.problem for task in bench.tasks.values()], budget=budget)
    for one in solved:
        bench.calls += one.verifier_calls
        bench.tokens += one.generated_tokens
        bench.step_scores += sum(event.ledger.verifier_steps for event in one.events)
    return [one.answer for one in solved], bench


if __name__ == "__main__":
    main()
