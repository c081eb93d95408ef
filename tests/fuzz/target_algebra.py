"""Fuzz target: moves of algebra, gated and applied."""

from functools import partial

import fuzz_domains

BETWEEN = " "
WORDS = tuple(
    """
    expand collect scale divide add subtract put solve roots drop answer as by in so or sum product
    is : = / * ( ) + - ; ; ; e1 e1 e2 e2 e3 e4 e16 e17 x x y z xx yy positive negative even odd
    above below not 0 1 2 3 4 5 -1 -2 -3 6 8 12 18 200 201 -200 01 1e2 \u0663
    """.split()  # noqa: SIM905
)
start = partial(fuzz_domains.begin, "algebra")
feed = partial(fuzz_domains.feed, "algebra")
