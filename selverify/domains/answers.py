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
    r"^(?P<marked>####)"
    r"|\b(?i:the (?:final |correct )?answer(?: to (?:(?!\bis\b)[^.\n]){1,40}?)? is\b):?",
    re.MULTILINE,
)
_BOLD = re.compile(r"(\*\*?)([^*\n]+)\1")
_DISPLAYED = re.compile(r"(?:\\\[|\$\$)(.+?)(?:\\\]|\$\$)", re.DOTALL)
_SIGN = r"[-+\u2212\u00b1$\u20ac\u00a3\u221a\u221e\u2248~(\[{\\\d.]"
_FORMULA = re.compile(rf"{_SIGN}|[^\W\d_]\W|[^\W\d_]$")
_MARKED = re.compile(rf"(?!\d[.):]\s+\S){_SIGN}|[^\W\d_]\w?(?:\s*[-+*/^=<>(_]|$)")
"""What stands behind ``####``, if it is no heading: ``#### 1. Find x`` is one."""
_SENTENCE_AFTER = re.compile(
    r"(?:(?<=[\d$)}%*\]])|(?<=[a-z]{2}))\.\s+(?=[A-Z])|,\s+(?:since|because|which|so|as)\b"
)
"""After a formula or a word: ``St.`` and ``p.m.`` end no sentence."""
_WRAPPERS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"), ("$", "$"), ("**", "**"))
_JUDGED = frozenset(
    {"correct", "incorrect", "right", "wrong", "reasonable", "unreasonable", "unknown", "unclear"}
)
_HEADINGS = frozenset(
    {"answer", "solution", "conclusion", "calculation", "calculations", "explanation", "result"}
    | {"summary", "verification", "check", "analysis", "steps", "step", "reasoning"}
)
_MAX_WORDS = 3
_MOST_STATED, _MAX_STATED = 4, 2_000
"""Of "the answer is" the last few are read, and so many characters behind each."""
_NO_BOX = -1


def stated_answer(text: str) -> str | None:
    r"""The last ``\boxed{}``; without one, what the last ``####`` or "the answer is" gives.

    Behind "the answer is" a formula gives an answer, or at most three words: "the answer is not
    obvious" gives none, and one before it counts. Behind ``####`` a formula does, and a word at the
    end of the text that is no heading. Only the last 20,000 characters are read.
    """
    text = text[-_MAX_READ:]
    boxed = extract_boxed(text)
    if boxed:
        return boxed
    for found in list(_STATED.finditer(text))[: -_MOST_STATED - 1 : -1]:
        behind = text[found.end() : found.end() + _MAX_STATED].strip()
        if (bold := _BOLD.match(behind)) is not None:
            behind = f"{bold[2]}{behind[bold.end() :]}"
        value = _value(behind)
        if found["marked"]:
            is_one = _MARKED.match(behind) or _is_last_word(behind)
        else:
            is_one = _FORMULA.match(value) or _is_short(value)
        if value and is_one:
            return value
    return None


def _value(behind: str) -> str:
    displayed = _DISPLAYED.match(behind)
    if displayed is not None:
        return bare_answer(displayed[1])
    said = _SENTENCE_AFTER.split(behind.partition("\n")[0], maxsplit=1)[0]
    said = said.strip("* ").rstrip(". ").strip("* ")
    return bare_answer(said.strip("$ ") if said.count("$") % 2 else said)


def _is_short(value: str) -> bool:
    words = value.lower().split()
    if not 0 < len(words) <= _MAX_WORDS or words[-1] in _JUDGED:
        return False
    return len(words) == 1 or words[0] not in ("not", "no")


def _is_last_word(behind: str) -> bool:
    word = behind.strip("*. ")
    return word.isalpha() and word.lower() not in _HEADINGS


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
