"""Texts that ask for more than they are worth: deep, long, huge, or not what they look like.

Knows: how such texts are made. Does not know: who reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

LIMIT = 0.05
"""Seconds that a gate or a parser may take."""
MEGABYTE = 1_000_000
DEEP = 10_000
PAIRS = (
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ("<", ">"),
    ("\\left(", "\\right)"),
    ("\\frac{", "}{1}"),
    ("\\sqrt{", "}"),
    ("\\text{", "}"),
    ("\\boxed{", "}"),
    ("\\begin{matrix}", "\\end{matrix}"),
    ("[asy]", "[/asy]"),
    ('{"a":', "}"),
    ('{"op": "define", "args": ', "}"),
)
REPEATED = (
    *("9**", "9^", "2^{", "\\frac", "\\frac1", "-", "+", "!", "%", "=", "1=", "x=1,", "*", "/"),
    *("1/", "#1 ", "#1.", "(by #1", "1,", "1,000", "0.", "..", "1 x ", "the answer is "),
    *("\\boxed ", "\\boxed 2", "\\boxed{", "\\boxed{1}", "{1}", "####", "\n####"),
    *("\n", "\n\n", " ", "\t", "\r", "\x0b", "\x0c"),
    *("\xa0", "\u3000", "a", "a b ", "\\", '"', '\\"', "`", "```", "$", "$ ", "$a$", "~=", "= ~"),
    *("\\not ", "\\text{a} ", "\\quad ", "\\, ", "\xb0", "1e999 ", "<|a|>", "[INST]"),
    *("5 apples + ", "if ", "x = ", "use 1 ", "e1 : 1 x = 1 . ", "; ", "apples 1 ; "),
    *("answer 1 ; ", "1 2 3 ", ". ", "a? ", "[asy] ", "20%+", "(1+20%)/", "\\sqrt{4}", "100!"),
    *("9^60 ", "A_1 ", "$ABCDEF$ ", "a*b", "1_1 ", '{"op":', "}", "\u200f", "\u202e", "\u0301"),
    *("\ufeff", "\u0661", "\uff11", "\xb2", "\xbd", "\xd7", "\u2212", "\x00", "\x1b[31m"),
    *("\ud800", "\udfff", "\U0001f600"),
)
LOOKALIKES = (
    *("\uff12\uff14", "\u0662\u0664", "\xb2\u2074", "\U0001d7d0\U0001d7d2", "2\u200b4"),
    *("2\u202e4", "answer \uff12\uff14 ;", "answer = \u0662\u0664 ;", "\u0430nswer 4 ;"),
    *("8 \uff0f 8 = 1 left 1 4 7 ;", "x \uff1d 3 ;", "x = \u22123 ;"),
    *("1 \uff0b 1 \uff1d 3", "answer 4\x00 ;", "\uff5b\u201cop\u201d: 1\uff5d"),
    *('{"\u043ep": "answer"}', "\\b\u043exed{4}", "\u202e}4{dexob\\"),
)
HUGE = {
    "tower": "9**9**9**9",
    "tower of LaTeX": "9^{9^{9^{9}}} = 1",
    "factorials": "9!!!!!!!!! = 1",
    "exponent": "1e999999999 = 1",
    "exponent of many digits": "1e" + "9" * MEGABYTE,
    "digits": "9" * MEGABYTE,
    "digits of a claim": "9" * MEGABYTE + " = 1",
    "digits after the point": "0." + "9" * MEGABYTE + " = 1",
    "answer of many digits": "answer " + "9" * MEGABYTE + " ;",
    "object of many digits": '{"op": "answer", "args": {"symbol": "k", "value": ' + "9" * MEGABYTE,
    "fractions in fractions": "\\frac{1}{" * DEEP + "1" + "}" * DEEP + " = 1",
    "many tokens": "1 + " * 250_000 + "1 = 1",
    "many words": "apples " * 140_000,
    "many keys": "{" + ",".join(f'"{key}":1' for key in range(90_000)) + "}",
    "one word": "a" * MEGABYTE,
    "numbers with units": "1 a " * 5_000 + "= 3",
    "mixed numbers": "2 \\frac12" * 3_000 + " = 3",
    "chain of roots": "=".join(["0*\\sqrt{{9^60}^{10}" + "*1%" * 14 + "}"] * 60),
    "chain of quotients": "=".join(["1%" + "*1%" * 14 + "*({7^60}^9)" + "/1" * 60] * 20),
    "chain of sums": ("1+" * 95 + "1=") * 20,
    "LaTeX in JSON": '{"op": "answer", "args": {"symbol": "h", "value": "' + "\\f" * 1_000 + '"}}',
    "one line": "Let x be 1. " * 80_000,
}


def _made() -> dict[str, str]:
    found = dict(HUGE)
    for opening, closing in PAIRS:
        found[f"nested {opening}"] = opening * DEEP + "1" + closing * DEEP
        found[f"opened {opening}"] = opening * DEEP
        found[f"closed {opening}"] = closing * DEEP
        found[f"side by side {opening}"] = (opening + "1" + closing) * DEEP
        found[f"claim with {opening}"] = "1 = " + opening * 40 + "1" + closing * 40
    for piece in REPEATED:
        for size in (2_000, 3_999, MEGABYTE):
            found[f"{size} of {piece!r}"] = (piece * (size // len(piece) + 1))[:size]
    found |= {f"look-alike {text!r}": text for text in LOOKALIKES}
    return found


BOMBS: Mapping[str, str] = MappingProxyType(_made())


def quickest(work: Callable[[], object], *, limit: float = LIMIT) -> float:
    """Seconds of this thread's processor, of up to three tries: the machine may be busy."""
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
        if best < limit / 2:
            break
    return best
