"""What a log of a model's run holds: candidate lists at states, and sampled solutions.

Knows: the fields, and which values they may have. Does not know: files, formats of others, rankers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

LONGEST_TEXT = 200_000
"""Characters of one text; a longer one is refused."""
MOST_ENTRIES = 10_000
"""Candidates of a list, steps of a prefix or a solution."""
LONGEST_NAME = 500
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""Names are printed: none holds what ends a line, moves a cursor or turns the text round."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME, pattern=PRINTABLE)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT)]
Score = Annotated[float, Field(allow_inf_nan=False)]
Steps = Annotated[tuple[Text, ...], Field(max_length=MOST_ENTRIES, strict=False)]


class Entry(BaseModel):
    """A row of a log: frozen, and without fields that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Candidate(Entry):
    """One move that was proposed at a state.

    Attributes:
        text: as the model wrote it.
        score: what the recorded verifier said, higher is better; None: it was not asked.
        label: whether the move is right by a person or by exact truth; None: nobody knows.
        times: how often it was proposed, where repetitions were merged.
        logprob: log probability of the whole move, in nats; None: not recorded.
    """

    text: Text
    score: Score | None = None
    label: bool | None = None
    times: Annotated[int, Field(ge=1)] = 1
    logprob: Score | None = None


class RecordedList(Entry):
    """The candidates of one visited state, in the order in which they were recorded.

    ``prefix`` holds the moves before it. ``run`` names one run of one model: states of a problem
    that two runs visited are two. ``committed`` is the place of the move that the run went on
    with, where it is known.
    """

    kind: Literal["list"] = "list"
    problem_id: Name
    state_id: Name
    run: Name
    model: Name
    question: Text
    prefix: Steps = ()
    candidates: Annotated[
        tuple[Candidate, ...], Field(min_length=1, max_length=MOST_ENTRIES, strict=False)
    ]
    committed: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _committed_is_a_candidate(self) -> RecordedList:
        if self.committed is not None and self.committed >= len(self.candidates):
            raise ValueError(
                f"committed: given {self.committed}, expected below {len(self.candidates)}"
            )
        return self


class RecordedSample(Entry):
    """One sampled solution of a problem.

    ``sample`` is its place among the samples of the run. ``step_scores``: what a process reward
    model said of each step, in order; None: it was not asked. ``correct``: whether the answer is
    right; None: to be graded against ``gold``. ``tokens``: how many were generated.
    """

    kind: Literal["sample"] = "sample"
    problem_id: Name
    run: Name
    model: Name
    question: Text | None = None
    gold: Text | None = None
    sample: Annotated[int, Field(ge=0)]
    steps: Steps
    answer: Text | None = None
    step_scores: (
        Annotated[tuple[Score, ...], Field(min_length=1, max_length=MOST_ENTRIES, strict=False)]
        | None
    ) = None
    correct: bool | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
