r"""The answer that a text states: ``\boxed{}``, ``####``, or "the answer is".

Knows: where an answer stands in a text. Does not know: whether it is right (``grading`` does).
"""

from __future__ import annotations

import re

_MAX_READ = 20_000
"""Characters at the end of a text that are read; the longest solution on record has 12,000."""
_BOX_TOKEN = re.compile(r"\\boxed\s*\{|\\.|\{|\}+", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
_STATED = re.compile(r"^####|\b[Tt]he (?:final )?answer is:?", re.MULTILINE)
_FORMULA = re.compile(r"[-+$(\\\d.]|[^\W\d_]\W|[^\W\d_]$")
_SENTENCE_AFTER = re.compile(r"(?:(?<=[\d$)}%*\]])|(?<=[a-z]{2}))\.\s+(?=[A-Z])")
"""After a formula or a word: ``St.`` and ``p.m.`` end no sentence."""
_WRAPPERS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("**", "**"))
_MAX_WORDS = 3
_NO_BOX = -1


def stated_answer(text: str) -> str | None:
    r"""The last ``\boxed{}``; without one, what the last ``####`` or "the answer is" gives.

    These give an answer where a formula follows, or at most three words: neither a heading
    (``#### Step 2: find x``) nor "the answer is not obvious" states one. Only the last 20,000
    characters are read.
    """
    text = text[-_MAX_READ:]
    boxed = extract_boxed(text)
    if boxed:
        return boxed
    stated = [found.end() for found in _STATED.finditer(text)]
    if not stated:
        return None
    line = text[stated[-1] :].strip().partition("\n")[0]
    value = _SENTENCE_AFTER.split(line, maxsplit=1)[0].strip("* ").rstrip(". ").strip("*$ ")
    value = bare_answer(value)
    short = len(value.split()) <= _MAX_WORDS and not value.startswith(("not ", "no "))
    return value if value and (short or _FORMULA.match(value)) else None


def bare_answer(answer: str) -> str:
    r"""The answer without a full stop, bold type and the signs of a formula, ``\(`` and ``$``."""
    while True:
        inner = answer.strip()
        if inner.endswith(".") and not inner.endswith(".."):
            inner = inner[:-1].rstrip()
        for left, right in _WRAPPERS:
            within = inner[len(left) : -len(right)]
            if inner == f"{left}{within}{right}" and left not in within and right not in within:
                inner = within
        if inner == answer:
            return inner
        answer = inner


def extract_boxed(text: str) -> str | None:
    r"""The content of the last balanced ``\boxed{}``, stripped, or of the last ``\boxed 2``.

    None when there is neither. Only the last 20,000 characters are read, in one pass.
    """
    text = text[-_MAX_READ:]
    open_braces: list[int] = []
    last: tuple[int, int] | None = None
    for token in _BOX_TOKEN.finditer(text, _first_box(text)):
        said = token[0]
        if said == "{":
            open_braces.append(_NO_BOX)
        elif said == "}":
            start = open_braces.pop() if open_braces else _NO_BOX
            if start > (_NO_BOX if last is None else last[0]):
                last = (start, token.start())
        elif said[0] == "}":
            # Of boxes that end together the innermost one began last.
            closed = open_braces[: -len(said) - 1 : -1]
            del open_braces[-len(said) :]
            after = next((place for place, start in enumerate(closed) if start != _NO_BOX), None)
            if after is not None and (last is None or closed[after] > last[0]):
                last = (closed[after], token.start() + after)
        elif said[-1] == "{" and said != r"\{":
            open_braces.append(token.end())
    if last is None:
        bare = _BARE_BOX.findall(text)
        return bare[-1].rstrip(".,") if bare else None
    return text[last[0] : last[1]].strip()


def _first_box(text: str) -> int:
    r"""Where the backslashes of the first ``\boxed`` begin; the end of the text without one."""
    found = text.find(r"\boxed")
    if found < 0:
        return len(text)
    return len(text[:found].rstrip("\\"))
