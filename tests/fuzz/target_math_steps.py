"""Fuzz target: steps of ordinary text, gated and applied."""

from functools import partial

import fuzz_domains
from fuzz_words import MATH

BETWEEN = ""
WORDS = MATH
start = partial(fuzz_domains.begin, "math")
feed = partial(fuzz_domains.feed, "math")
