"""Fuzz target: moves of word problems, gated and applied."""

from functools import partial

import fuzz_domains

from selverify.domains.word_problems import NUMBERS, WordProblems

BETWEEN = " "
WORDS = (
    *(word for word in fuzz_domains.begin("word_problems").problem.text.split() if word != "."),
    *("answer", "=", "+", "-", "*", ";", ";", ";"),
    *list(NUMBERS)[:12],
    *WordProblems.vocabulary[:6],
    "\uff11",
    "-1",
    "1_0",
    "01",
)
start = partial(fuzz_domains.begin, "word_problems")
feed = partial(fuzz_domains.feed, "word_problems")
