"""Where the targets of the fuzzer and the stand-in for a server lie."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "fuzz"), str(TESTS / "faults")]
