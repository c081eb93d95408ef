"""The totals of an evaluation's ledgers and of its event log, recomputed by DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb

from selverify.experiment.methods import METHODS, setting_name
from selverify.params import Params


def check_totals(folder: Path, params: Params) -> None:
    """Check that they agree on the full method at the headline budget, the grid being one setting.

    ``params`` are those of the evaluation's backbone and strength, with its verifier's own tau.
    """
    name = setting_name(
        tuple((axis, getattr(params.search, axis)) for axis in METHODS["full"].grid)
    )
    query = f"""
        with events as (
            select problem_id, sum(verifier_calls) calls, sum(verifier_steps) steps,
                   sum(generated_moves) moves, sum(generated_tokens) tokens,
                   sum(read_tokens) read, sum(verified_tokens) verified
            from '{folder}/events.parquet' group by problem_id
        ), ledgers as (
            select problem_id, verifier_calls calls, verifier_steps steps,
                   generated_moves moves, generated_tokens tokens,
                   read_tokens read, verified_tokens verified
            from '{folder}/outcomes.parquet'
            where method = 'full' and n = {params.evaluation.headline_budget}
              and sampling_seed = {params.evaluation.sampling_seeds[0]} and setting = '{name}'
        )
        select count(*), count(*) filter (where events = ledgers), sum(events.calls)
        from events join ledgers using (problem_id)
        """
    with duckdb.connect() as connection:
        ((problems, equal, calls),) = connection.execute(query).fetchall()
    assert problems == equal == params.evaluation.problems
    assert calls > 0
