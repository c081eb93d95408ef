"""The rows of evaluations as they are kept: each outcome of a problem once.

Most settings of a method end alike, so five rows in six repeat another one. Knows: the tables
``outcomes`` and ``transfer``. Does not know: what their numbers mean, who reads them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from selverify.errors import SchemaError
from selverify.storage import read_table, write_table
from tasks.artifacts import VERSION
from tasks.evaluation import ORDER

TABLES = ("outcomes", "transfer")
RUN = ["problem_id", "sampling_seed"]
POINT = ["method", "n", "setting"]
ROW = "row"
"""Of a search: which of the outcomes of its problem and seed it is."""
_KEPT = "kept"
_SEARCHES = "{}-searches.parquet"


def fold(folder: Path) -> None:
    """In place of each table below ``folder``: its distinct outcomes, and which search has which.

    The table itself is what ``unfold`` gives.
    """
    for name in TABLES:
        for path in sorted(folder.rglob(f"{name}.parquet")):
            table = read_table(path, schema=f"evaluation.{name}", version=VERSION)
            if not len(table):
                continue
            frame = table.select([*RUN, *POINT]).to_pandas()
            own = [one for one in table.column_names if one not in POINT]
            values = table.select(own).to_pandas()
            first = frame.assign(at=range(len(frame))).sort_values([*RUN, "at"])["at"]
            values, frame = values.iloc[first], frame.iloc[first]
            same = values.groupby(own, dropna=False, sort=False).ngroup()
            begins = same.groupby([frame[key] for key in RUN]).transform("min")
            distinct = table.take(pa.array(first[~same.duplicated().to_numpy()])).select(own)
            searches = frame.assign(**{ROW: same - begins})
            searches = searches.sort_values([POINT[0], *RUN, *POINT[1:]])
            kinds = [table.schema.field(one) for one in (*RUN, *POINT)]
            schema = pa.schema([*kinds, pa.field(ROW, pa.int64())])
            rows = pa.Table.from_pandas(searches, schema=schema, preserve_index=False)
            beside = path.with_name(_SEARCHES.format(name))
            _write(beside, rows, "searches")
            _write(path, distinct, name)


def _write(path: Path, table: pa.Table, name: str) -> None:
    write_table(path, table, schema=f"{_KEPT}.{name}", version=VERSION, dense=True)


def unfold(folder: Path) -> None:
    """The tables again, in the order in which an evaluation writes them.

    Raises:
        SchemaError: what is kept is damaged, or of another version.
    """
    for name in TABLES:
        for beside in sorted(folder.rglob(_SEARCHES.format(name))):
            path = beside.with_name(f"{name}.parquet")
            searches = read_table(beside, schema=f"{_KEPT}.searches", version=VERSION)
            distinct = read_table(path, schema=f"{_KEPT}.{name}", version=VERSION)
            frame = searches.to_pandas()
            runs = distinct.select(RUN).to_pandas()
            begins = runs.reset_index(names="begin").drop_duplicates(RUN)
            begins["count"] = runs.groupby(RUN, sort=False).size().to_numpy()
            at = frame.merge(begins, on=RUN, how="left", validate="many_to_one")
            if not at[ROW].between(0, at["count"] - 1).all():
                raise SchemaError(
                    f"{beside}: searches of other outcomes than {path.name} has, expected those of "
                    "the same evaluation"
                )
            order = pc.sort_indices(searches, [(one, "ascending") for one in ORDER])
            rows = distinct.take(pa.array(at["begin"] + at[ROW]).take(order))
            for one in POINT:
                rows = rows.append_column(one, searches[one].take(order))
            heads = ["sampling_seed", "method", "setting", "n", "problem_id"]
            rows = rows.select([*heads, *(one for one in rows.column_names if one not in heads)])
            write_table(path, rows, schema=f"evaluation.{name}", version=VERSION)
            beside.unlink()
