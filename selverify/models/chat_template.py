"""A chat as text by a tokenizer's own template, the same on every day.

Knows: what a template may be given. Does not know: models, what the chat is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

_DAY = date(2024, 7, 26)
"""The day for templates that show one (Llama 3): today's would change every prompt."""
_SHOWN = {f"%{code}": f"{_DAY:%{code}}" for code in "YyBbmdAajHIMSpeFDTxXcZ"} | {
    "%-d": str(_DAY.day),
    "%-m": str(_DAY.month),
}
_REPLACED = "".join(f" | replace('{code}', '{shown}')" for code, shown in _SHOWN.items())
_FIXED_DAY = f"{{% macro strftime_now(format) %}}{{{{ format{_REPLACED} }}}}{{% endmacro %}}\n"
"""Hides the function of that name: transformers lets no other one into a template."""


def render_chat(tokenizer: Any, said: Sequence[tuple[str, str]], *, answer: bool) -> str:
    """The text of (role, text) turns by the tokenizer's chat template.

    Args:
        answer: whether the assistant's answer is begun at the end.

    Raises:
        TemplateError: the template refuses the turns.
    """
    template = tokenizer.get_chat_template()
    if "strftime_now" in template:
        template = _FIXED_DAY + template
    rendered: str = tokenizer.apply_chat_template(
        [{"role": role, "content": text} for role, text in said],
        tokenize=False,
        add_generation_prompt=answer,
        chat_template=template,
        date_string=f"{_DAY:%d %b %Y}",
    )
    return rendered
