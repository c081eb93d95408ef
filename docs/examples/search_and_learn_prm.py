"""search-and-learn's searches with fewer calls of their process reward model.

    pip install git+https://github.com/huggingface/search-and-learn
    ranked = RankedPRM(prm, selverify.Ranker.load("ranker/"))
    beam_search(examples, config, llm, ranked)

``RankedPRM`` stands before any of its reward models, in beam search and DVTS: of the steps that
follow the same text it scores those that a ranker of yours (``selverify train LOG -o ranker/``)
picks, each text once. The others rank below all that were scored, but for a step that the ranker
would commit without a call. ``python
docs/examples/search_and_learn_prm.py`` runs its beam search before and after, with a writer and a
reward model of a few lines each in place of vLLM and a PRM; the ranker can see for itself whether
an addition holds: yours will save less.
"""

from __future__ import annotations

import random
import re
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import selverify
from selverify.audit.log import RecordedCandidate, RecordedList

END = "\n\n"
N, QUESTIONS, LOG = 12, 20, 60


class RankedPRM:
    """``prm`` behind ``ranker``."""

    def __init__(self, prm: Any, ranker: selverify.Ranker) -> None:
        self._prm, self._ranker = prm, ranker

    def score(
        self, questions: list[str], outputs: list[list[str]], **options: Any
    ) -> list[list[list[float]]]:
        """The scores of each output's steps, or of one that was not scored a single one: at most 0,
        or above it where the ranker would commit its last step without a call."""
        pairs = [
            (question, text)
            for question, own in zip(questions, outputs, strict=True)
            for text in own
        ]
        picked = self._ranker.pick(
            [question for question, _ in pairs], [text for _, text in pairs], separator=END
        )
        chosen = [pairs[place] for place in picked.places]
        found = []
        if chosen:
            asked, texts = [question for question, _ in chosen], [[text] for _, text in chosen]
            found = [own[0] for own in self._prm.score(asked, texts, **options)]
        scores = iter(picked.fill(found, lambda score: [score]))
        return [[next(scores) for _ in own] for own in outputs]


class Adder:
    """vLLM's place: adds the numbers of a question one by one, and errs six times in ten."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def get_tokenizer(self) -> Adder:
        return self

    def apply_chat_template(self, conversations: list[Any], **_: Any) -> list[str]:
        return ["".join(one["content"] + END for one in own[1:]) for own in conversations]

    def generate(self, prompts: list[str], *_: Any, **__: Any) -> list[Any]:
        return [SimpleNamespace(outputs=[self._said(prompt)]) for prompt in prompts]

    def _said(self, prompt: str) -> Any:
        question, *said = (part for part in prompt.split(END) if part)
        text = self.step(question, said)
        ended = "answer" in text
        return SimpleNamespace(
            text=text if ended else text + END,
            stop_reason=None if ended else END,
            token_ids=text.split(),
        )

    def step(self, question: str, said: list[str]) -> str:
        """The next step of a solution."""
        digits = [int(one) for one in re.findall(r"\d+", question)]
        total = int(said[-1].rstrip(".").split("= ")[-1]) if said else digits[0]
        if len(said) + 1 == len(digits):
            return f"The answer is = {total}."
        digit = digits[len(said) + 1]
        wrong = 0 if self._rng.random() < 0.4 else self._rng.randint(1, 5)
        return f"So {total} + {digit} = {total + digit + wrong}."


class Checker:
    """A reward model that sees whether every addition holds; ``calls`` counts the texts."""

    def __init__(self) -> None:
        self.calls = 0

    def score(
        self, questions: list[str], outputs: list[list[str]], **_: Any
    ) -> list[list[list[float]]]:
        self.calls += sum(map(len, outputs))
        return [[[0.9 if holds(text) else 0.1] for text in own] for own in outputs]


def holds(text: str) -> bool:
    """Whether all additions in ``text`` are right."""
    found = re.findall(r"So (\d+) \+ (\d+) = (\d+)", text)
    return all(int(a) + int(b) == int(c) for a, b, c in found)


def asked(count: int, seed: int) -> list[str]:
    """So many questions."""
    rng = random.Random(seed)
    return [
        "What is " + " + ".join(str(rng.randint(2, 9)) for _ in range(4)) + "?"
        for _ in range(count)
    ]


def recorded() -> list[RecordedList]:
    """A log: what the writer proposed, and what the checker said."""
    writer, found = Adder(1), []
    for question in asked(LOG, 2):
        said: list[str] = []
        for _ in range(3):
            texts = list(dict.fromkeys(writer.step(question, said) for _ in range(6)))
            found.append(
                RecordedList(
                    problem_id=question, state_id=f"{question} {len(said)}", run="log",
                    model="adder", question=question, prefix=tuple(said),
                    candidates=tuple(
                        RecordedCandidate(text=text, score=0.9 if holds(text) else 0.1)
                        for text in texts
                    ),
                )
            )  # fmt: skip
            said.append(next((text for text in texts if holds(text)), texts[0]))
    return found


def search(prm: Any) -> list[str]:
    """search-and-learn's beam search on each question; the texts that it chose."""
    from sal.config import Config  # noqa: PLC0415  # imports vLLM
    from sal.search.beam_search import beam_search  # noqa: PLC0415

    config = Config(approach="beam_search", n=N, num_iterations=5, search_batch_size=1)
    return [
        beam_search({"problem": [question]}, config, Adder(number), prm)["pred"][0]
        for number, question in enumerate(asked(QUESTIONS, 3))
    ]


def without_vllm() -> None:
    """search-and-learn imports vLLM, whose place the writer takes."""
    if find_spec("vllm") is None:
        vllm = ModuleType("vllm")
        vllm.LLM, vllm.SamplingParams = Adder, SimpleNamespace  # type: ignore[attr-defined]
        sys.modules["vllm"] = vllm


def main() -> None:
    """The same searches before and after."""
    without_vllm()
    ranker = selverify.Ranker.train(recorded(), encoder="free", source="search-and-learn's own log")
    before, after = Checker(), Checker()
    for name, checker, prm in (
        ("before", before, before),
        ("after", after, RankedPRM(after, ranker)),
    ):
        right = sum(holds(text) for text in search(prm))
        print(f"{name}: {right} of {QUESTIONS} right, {checker.calls} calls")


if __name__ == "__main__":
    main()
