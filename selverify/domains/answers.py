r"""The answer that a text states: ``\boxed{}``, ``####``, or "the answer is".

Knows: where an answer stands in a text. Does not know: whether it is right (``grading`` does).
"""

from __future__ import annotations

import re

_MAX_READ = 20_000
"""Characters at the end of a text that are read; the longest solution on record has 12,000."""
_BOX_TOKEN = re.compile(r"\\boxed\s*\{|\\.|\{|\}+", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\]+)")
_STATED = re.compile(
    r"^(?P<marked>####)|\b(?i:the (?:final |correct )?answer(?: to [^.\n]{1,40}?)? is):?",
    re.MULTILINE,
)
_DISPLAYED = re.compile(r"(?:\\\[|\$\$)\s*(.+?)\s*(?:\\\]|\$\$)", re.DOTALL)
_FORMULA = re.compile(r"[-+$(\\\d.]|[^\W\d_]\W|[^\W\d_]$")
_MARKED = re.compile(r"(?!\d+[.):]\s+\S)[-+$(\\\d.]|[^\W\d_](?:\s*[-+*/^=<>(]|$)")
"""What stands behind ``####``, if it is no heading: ``#### 1. Find x`` is one."""
_SENTENCE_AFTER = re.compile(
    r"(?:(?<=[\d$)}%*\]])|(?<=[a-z]{2}))\.\s+(?=[A-Z])|,\s+(?:since|because|which|so|as)\b"
)
"""After a formula or a word: ``St.`` and ``p.m.`` end no sentence."""
_WRAPPERS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("**", "**"))
_JUDGED = frozenset(
    {"correct", "incorrect", "right", "wrong", "reasonable", "unreasonable", "unknown", "unclear"}
)
_MAX_WORDS = 3
_MOST_STATED, _MAX_STATED = 4, 2_000
"""Of "the answer is" the last few are read, and so many characters behind each."""
_NO_BOX = -1


def stated_answer(text: str) -> str | None:
    r"""The last ``\boxed{}``; without one, what the last ``####`` or "the answer is" gives.

    Behind "the answer is" a formula gives an answer or, where none does, at most three words: "the
    answer is not obvious" gives none. Behind ``####`` only a formula does, for headings begin so,
    too. Only the last 20,000 characters are read.
    """
    text = text[-_MAX_READ:]
    boxed = extract_boxed(text)
    if boxed:
        return boxed
    worded = None
    for found in list(_STATED.finditer(text))[: -_MOST_STATED - 1 : -1]:
        value = _value(text[found.end() : found.end() + _MAX_STATED].strip(), found["marked"])
        if value and (_MARKED if found["marked"] else _FORMULA).match(value):
            return value
        if worded is None and value and not found["marked"] and _is_short(value):
            worded = value
    return worded


def _value(behind: str, marked: str | None) -> str:
    displayed = _DISPLAYED.match(behind)
    if displayed is not None:
        return displayed[1]
    line = behind.partition("\n")[0]
    said = line if marked else _SENTENCE_AFTER.split(line, maxsplit=1)[0]
    said = said.strip("* ").rstrip(". ").strip("* ")
    return bare_answer(said.strip("$ ") if said.count("$") % 2 else said)


def _is_short(value: str) -> bool:
    words = value.split()
    return len(words) <= _MAX_WORDS and not (
        words[0] in ("not", "no") or words[-1].lower() in _JUDGED
    )


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
