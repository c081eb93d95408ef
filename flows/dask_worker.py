"""What a Dask worker on this machine does first: Dask imports this module in each.

Knows: signals. Does not know: Dask beyond the name of the function that it calls.
"""

from __future__ import annotations

import signal


def dask_setup(worker: object) -> None:
    """Ctrl-C reaches a whole terminal, and it is the stage that ends its workers, in one line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
