"""Artifacts in Prefect: what shows results must not cost them.

Knows: how Prefect's client fails. Does not know: what is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from httpx import HTTPError
from prefect.exceptions import PrefectException

log = logging.getLogger(__name__)


@contextmanager
def shown(name: str) -> Iterator[None]:
    """A server of Prefect that does not answer in the block costs a warning and what was shown."""
    try:
        yield
    except (HTTPError, PrefectException) as error:
        log.warning("%s: not shown in Prefect: %s", name, error)
