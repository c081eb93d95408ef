"""Fuzz target: moves of countdown, gated and applied."""

from functools import partial

import fuzz_domains

BETWEEN = " "
WORDS = (
    *fuzz_domains.begin("countdown").problem.text.split(),
    *("answer", "=", "left", "+", "-", "*", "/", ";", ";", ";"),
    *map(str, range(26)),
    "200",
    "201",
    "\u0662",
    "-1",
    "1e3",
)
start = partial(fuzz_domains.begin, "countdown")
feed = partial(fuzz_domains.feed, "countdown")
