"""The model card of a ranker: what it was learned from, what it saves, when not to trust it.

Knows: the rule, the coverage of the log, the savings. Does not know: models, files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from selverify.audit.judged_lists import ListCoverage
from selverify.audit.ranking_rule import Rule, Savings, problems_to_skip
from selverify.audit.text import FEW_PROBLEMS, MANY_MISSES, few_problems

FREE = "free"


class Learned(NamedTuple):
    """``source``: what the log is called. ``accepted``: what counts as accepted, in words.

    ``coverage`` is of the lists that were used, ``recorded`` of all that hold a verdict.
    """

    source: str
    accepted: str
    encoder: str
    wanted: float
    rule: Rule
    coverage: ListCoverage
    recorded: ListCoverage


def card_of(learned: Learned, savings: Savings) -> str:
    """The card as Markdown."""
    rule, coverage = learned.rule, learned.coverage
    blind = (
        "\n- The encoder `free` reads no words: of a state it sees how its candidates are written."
        if learned.encoder == FREE
        else ""
    )
    return f"""# Ranker of candidate steps

Orders candidate steps of a reasoning problem and says how many are worth a verifier call.

```python
import selverify

ranker = selverify.Ranker.load("this/folder")
plan = ranker.plan(question, steps_so_far, candidates)
```

## Learned from

{learned.source}: {coverage.used:,} candidate lists of {coverage.problems:,} problems, with
{coverage.candidates:,} distinct candidates. A candidate is accepted if {learned.accepted}.
{coverage.left_out:,} lists were left out, because a candidate had no verdict. Encoder
`{learned.encoder}`, order `{rule.scorer}`, k_base {rule.k_base:g}, beta {rule.beta:g}.

## What it saves

{savings_of(learned, savings)}

{_skipping(learned, savings)}

## When not to trust it

- On other problems, another generator or another verifier than those of the log. A state unlike
  those of the training is noticed (`plan.familiar`), and all its candidates are to be verified. One
  in a hundred states of the log would have been, and more of other problems where they are few.
- Where candidates are made otherwise, for example at another temperature or in other numbers.
- Where the verifier is wrong: the ranker learned what it accepts, not what is right.{blind}
"""


def savings_of(learned: Learned, savings: Savings) -> str:
    """What the rule comes to on other problems, and why that may not hold, in sentences."""
    ours, drawn, everything = savings.table.to_dict("records")
    saved = (
        f"On problems that it was not trained on it makes {_value(ours, 'calls', '{:.2f}')} calls "
        f"a state instead of {everything['calls']:.2f}, "
        f"{_value(ours, 'calls_ratio', '{:.1%}')} of them, and finds an accepted step in "
        f"{_value(ours, 'found', '{:.1%}')} of the states with several candidates, one of them "
        f"accepted (wanted: {learned.wanted:.1%}){_contested(savings)}; in random order that takes "
        f"{_value(drawn, 'calls', '{:.2f}')} calls. One by one, the first accepted step takes "
        f"{_value(ours, 'to_first', '{:.2f}')} calls, in random order "
        f"{everything['to_first']:.2f}. With 95 % intervals over problems, on which the rule was "
        "chosen; second plans, where no step of a first is accepted, do not count."
    )
    return " ".join([saved, *_doubts(learned)])


def _contested(savings: Savings) -> str:
    if not savings.contested:
        return ""
    return f", and in {savings.won:.1%} of the {savings.contested:,} where another is rejected"


def _doubts(learned: Learned) -> Iterator[str]:
    own, recorded = learned.coverage, learned.recorded
    if own.left_out >= MANY_MISSES * own.lists:
        yield (
            f"Distrust these figures: {own.left_out:,} of {own.lists:,} lists were left out, "
            "because a candidate had no verdict. Where the verifier stopped at the first accepted "
            "one, only lists in which it came last or never are left: "
            f"{own.reachable / own.used:.1%} of these hold an accepted step, and "
            f"{recorded.reachable / recorded.used:.1%} of all. Have all candidates of some "
            "problems verified."
        )
    if own.problems_reachable < FEW_PROBLEMS:
        yield few_problems(own)


def _skipping(learned: Learned, savings: Savings) -> str:
    rule = learned.rule
    if rule.skip_below is None:
        needed, problems = problems_to_skip(learned.wanted), learned.coverage.problems
        if problems < needed:
            return (
                f"Every state gets a call: {problems:,} problems are too few to say where one can "
                f"be done without, which takes at least {needed:,}."
            )
        return "Every state gets a call: no threshold was safe enough to do without."
    return (
        f"A first step that is rejected with a probability below {rule.skip_below:g} is committed "
        f"without a call: on problems that it was not trained on at {savings.skipped:,} of "
        f"{learned.coverage.used:,} states (in {savings.skipped_problems:,} problems), where "
        f"{savings.right / max(savings.skipped, 1):.1%} of these steps are accepted."
    )


def _value(row: Mapping[Any, Any], name: str, form: str) -> str:
    value, low, high = (form.format(row[name + end]) for end in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"
