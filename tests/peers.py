"""``make peers``: its_hub's searches on the same questions, generator and verifier as ours.

Needs ``pip install its_hub==1.2.0`` and the trained policy of a run. Its best-of-N, beam search and
particle filtering run behind its own interfaces; all problems at once, so that its batches are as
large as ours. Their calls and step scores are counted where the verifier is asked, ours are the
ledger's.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from its_hub.core.orchestrator import LMOrchestrator

from selverify.data.benchmark import Task
from selverify.data.grading import Grader
from selverify.policy import TrainedPolicy, load_policy
from selverify.search.aggregation import AGGREGATIONS
from selverify.search.driver import Search, run_searches
from selverify.search.requests import (
    Complete,
    CompleteItem,
    Propose,
    ProposeItem,
    Verify,
    VerifyItem,
)
from selverify.search.selective_vote import selective_vote
from selverify.types import Move, Sample, State, Verdict
from tasks.artifacts import read_tasks

END = "\x03"
"""Added to a line that ends a solution."""
CONFIDENCE = 0.8


@dataclass
class Bench:
    """The policy's models behind one queue, and what has been asked of them.

    Requests of all problems that wait are answered together, once none of them can go on; those for
    samples at one state are one request.
    """

    policy: TrainedPolicy
    tasks: dict[str, Task]
    aggregation: str
    drawn: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    waiting: list[tuple[Any, asyncio.Future[Any]]] = field(default_factory=list)
    calls: int = 0
    step_scores: int = 0
    tokens: int = 0

    async def sample(self, kind: type[CompleteItem | ProposeItem], state: State) -> Sample:
        """The next sample at a state."""
        key = kind, state.problem.problem_id, state.said
        self.drawn[key] += 1
        found: Sample = await self._ask(kind(state, self.drawn[key] - 1, 1))
        return found

    async def verdict(self, state: State, moves: tuple[Move, ...]) -> Verdict:
        """The verifier's, which is a call."""
        self.calls += 1
        self.step_scores += len(moves)
        found: Verdict = await self._ask(VerifyItem(state, moves))
        return found

    async def _ask(self, item: Any) -> Any:
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
        together: dict[Any, list[tuple[Any, asyncio.Future[Any]]]] = defaultdict(list)
        for item, future in asked:
            alone = id(item) if isinstance(item, VerifyItem) else 0
            state = item.state
            together[type(item), state.problem.problem_id, state.said, alone].append((item, future))
        for kind, request in (
            (CompleteItem, Complete),
            (ProposeItem, Propose),
            (VerifyItem, Verify),
        ):
            groups = [some for key, some in together.items() if key[0] is kind]
            if not groups:
                continue
            firsts = [some[0][0] for some in groups]
            if kind is not VerifyItem:
                firsts = [
                    replace(first, count=len(some))
                    for first, some in zip(firsts, groups, strict=True)
                ]
            replies = self.policy.backend.answer(request(tuple(firsts)))
            for some, reply in zip(groups, replies, strict=True):
                if kind is not VerifyItem:
                    self.tokens += sum(sample.tokens for sample in reply)
                own = [reply] if kind is VerifyItem else reply
                for (_, future), one in zip(some, own, strict=True):
                    future.set_result(one)

    def read(self, question: str, said: str) -> tuple[State, tuple[Move, ...], State] | None:
        """The problem's first state, the moves of a text up to its first answer, and the state
        after them; None where one is no move."""
        domain = self.policy.domain
        start = state = domain.initial_state(self.tasks[question].problem, budget=1)
        moves = []
        for line in said.replace(END, "").split(domain.end_of_move):
            if line.strip() and not domain.is_final(state):
                move = domain.parse(line)
                if not isinstance(move, Move):
                    return None
                moves.append(move)
                state = domain.apply(state, move)
        return start, tuple(moves), state


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
        question = str(messages[0].content)
        read = self._bench.read(question, str(messages[1].content) if len(messages) > 1 else "")
        if read is None:
            return {"role": "assistant", "content": END}
        sample = await self._bench.sample(CompleteItem if stop is None else ProposeItem, read[2])
        said = sample.text.strip()
        domain = self._bench.policy.domain
        move = domain.parse(said) if stop is not None else None
        if isinstance(move, Move) and domain.is_final(domain.apply(read[2], move)):
            said += END
        return {"role": "assistant", "content": said}


class Scores(AbstractProcessRewardModel, AbstractOutcomeRewardModel):
    """The verifier: the aggregated scores of a text's steps; 0 for one that is no derivation."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def score(self, asked: Any, steps: Any = None, **_: Any) -> list[float]:
        """The same, where no event loop runs."""
        return asyncio.run(self.ascore(asked, steps))

    async def ascore(self, asked: Any, steps: Any = None, **_: Any) -> list[float]:
        """Of texts after a question, or of whole conversations."""
        if steps is None:
            pairs = [(one[0].content, one[-1].content) for one in asked]
        else:
            pairs = [(asked, text) for text in steps]
        return list(await asyncio.gather(*(self._one(*pair) for pair in pairs)))

    async def _one(self, question: str, said: str) -> float:
        read = self._bench.read(question, said)
        if read is None or not read[1]:
            return 0.0
        verdict = await self._bench.verdict(*read[:2])
        return AGGREGATIONS[self._bench.aggregation](verdict.step_scores)


def main() -> None:
    """Measure and print a table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--policy", type=Path, required=True)
    asked.add_argument("--benchmark", type=Path, default=Path("data/benchmark"))
    asked.add_argument("--problems", type=int, default=100)
    asked.add_argument("--budgets", type=int, nargs="+", default=[4, 16])
    asked.add_argument("--aggregation", default="prod")
    asked.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = asked.parse_args()
    logging.disable(logging.INFO)
    tasks = read_tasks(given.benchmark, "test", limit=given.problems)
    print("| Method | N | Right | Calls | Step scores | Tokens | Seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with Grader(seconds=5.0, workers=1) as grader:
        for budget in given.budgets:
            for name in given.methods:
                # Anew, so that none finds what one before it had computed.
                policy = load_policy(given.policy)
                bench = Bench(policy, {one.problem.text: one for one in tasks}, given.aggregation)
                began = time.perf_counter()
                answers = METHODS[name](bench, budget)
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


def theirs(
    build: Callable[[StepGeneration, Scores, int], Any], bench: Bench, budget: int
) -> list[str | None]:
    """The answers of one of its algorithms."""
    random.seed(0)
    # It counts the steps before a step.
    most = bench.policy.policy_settings.sampling.max_moves - 1
    line = StepGeneration(max_steps=most, step_token="\n", stop_token=END)
    algorithm, model = build(line, Scores(bench), budget), Model(bench)

    async def one(question: str) -> str:
        found = await algorithm.ainfer(model, question, budget, return_response_only=False)
        return str(found.the_one["content"])

    texts = asyncio.run(bench.answer_all([one(question) for question in bench.tasks]))
    read = [bench.read(*pair) for pair in zip(bench.tasks, texts, strict=True)]
    return [None if one is None else bench.policy.domain.answer(one[2]) for one in read]


def ours(bench: Bench, budget: int) -> list[str | None]:
    """The answers of the trained policy; counts are the ledger's."""
    solved = bench.policy.solve_many([task.problem for task in bench.tasks.values()], budget=budget)
    for one in solved:
        bench.calls += one.verifier_calls
        bench.tokens += one.generated_tokens
        bench.step_scores += sum(event.ledger.verifier_steps for event in one.events)
    return [one.answer for one in solved]


def voted(bench: Bench, budget: int) -> list[str | None]:
    """The answers of ranked vote, which is settled at the middle of the profile's confidences."""
    domain = bench.policy.domain
    searches = {
        task.problem.problem_id: Search(
            selective_vote(
                domain, task.problem, n=budget, gates=True, ranked=True,
                aggregation=bench.aggregation, rule="beta", confidence=CONFIDENCE,
                temperature=None,
            ),
            budget=None,
        )
        for task in bench.tasks.values()
    }  # fmt: skip
    found = run_searches(searches, bench.policy.backend, end_of_move=domain.end_of_move)
    for one in found.values():
        bench.calls += one.ledger.verifier_calls
        bench.tokens += one.ledger.generated_tokens
        bench.step_scores += one.ledger.verifier_steps
    return [one.outcome.answer for one in found.values()]


METHODS: dict[str, Callable[[Bench, int], list[str | None]]] = {
    "its_hub best-of-N": partial(
        theirs, lambda _, scores, __: BestOfN(scores, LMOrchestrator(max_concurrency=-1))
    ),
    "its_hub beam search": partial(
        # As many beams as children of each, as near as powers of two come.
        theirs,
        lambda line, scores, n: BeamSearch(line, scores, beam_width=2 ** (n.bit_length() // 2)),
    ),
    "its_hub particle filtering": partial(
        theirs, lambda line, scores, _: ParticleFiltering(line, scores)
    ),
    "selverify, full": ours,
    "selverify, ranked vote": voted,
}


if __name__ == "__main__":
    main()
