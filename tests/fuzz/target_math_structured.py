"""Fuzz target: moves that are JSON objects, gated and applied."""

from functools import partial

import fuzz_domains

BETWEEN = ""
WORDS = (
    *('{"op": "', '", "args": {', "}}", '"', '", "', '": "', '": ', "{", "}", "[", "]", ",", "\\"),
    *("define", "require", "bound", "bind", "compute", "derive", "answer"),
    *("symbol", "meaning", "condition", "relation", "value", "because", "expression", "equation"),
    *("premises", "integer", "even", "odd", "positive", "negative", "nonzero", "<", ">=", "!="),
    *('{"op": "define", "args": {"symbol": "k", "meaning": "m"}}',),
    *('{"op": "bind", "args": {"symbol": "k", "because": "b", "value": "',),
    *('{"op": "compute", "args": {"symbol": "k", "because": "b", "expression": "', '", "value": "'),
    *('{"op": "derive", "args": {"premises": [1], "because": "b", "equation": "',),
    *('{"op": "require", "args": {"symbol": "k", "condition": "even"}}',),
    *('{"op": "bound", "args": {"symbol": "k", "relation": "<", "value": "',),
    *('{"op": "answer", "args": {"symbol": "k", "value": "', '"}}', '"}}', '"}}'),
    *"0123456789+-*/^=!%(). kxnAB_$",
    *("\\frac", "\\\\frac", "\\sqrt", "sqrt(", "1/3", "0.33", "20%", "\\text{", "\\not", "1e999"),
    *(
        "```",
        "```json",
        "\n",
        "NaN",
        "null",
        "\\u0031",
        "\\ud800",
        "\x00",
        "about ",
        "if ",
        "\uff11",
    ),
)
start = partial(fuzz_domains.begin, "math_structured")
feed = partial(fuzz_domains.feed, "math_structured")
