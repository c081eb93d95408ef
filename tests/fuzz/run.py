"""``make fuzz``: random bytes for every target, in turn; what breaks a promise is kept.

Knows: targets, how often to look at the clock. Does not know: what a target promises. Inputs follow
from the seed; an input that takes too long is measured three times.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback

from fuzz_targets import CORPUS, TARGETS, best_of_three, slowest_piece

LONGEST = 96
LIMIT = 0.05
"""Seconds for a piece, as in ``tests/hostile``."""
SAID = 60.0
"""Seconds between two lines."""


def main() -> None:
    """Feed ``--inputs`` inputs.

    Raises:
        SystemExit: an input broke a promise; it is kept under ``tests/fuzz/corpus``.
    """
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("--inputs", type=int, default=10_000_000)
    read.add_argument("--seed", type=int, default=0)
    given = read.parse_args()
    rng, names = random.Random(given.seed), list(TARGETS)
    began = said = time.monotonic()
    found = 0
    for number in range(given.inputs):
        name = names[number % len(names)]
        data = rng.randbytes(rng.randint(1, LONGEST))
        try:
            late = slowest_piece(TARGETS[name], data) > LIMIT
            wrong = f"over {LIMIT} s" if late and best_of_three(TARGETS[name], data) > LIMIT else ""
        except Exception:  # whatever it is, it is a find
            wrong = traceback.format_exc(limit=-3)
        if wrong:
            found += 1
            kept = CORPUS / name / f"seed{given.seed}-{number}"
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(data)
            print(f"{kept}: {wrong}", flush=True)
        if time.monotonic() - said > SAID:
            said = time.monotonic()
            print(
                f"{number + 1:,} inputs, {(number + 1) / (said - began):.0f} a second", flush=True
            )
    print(f"{given.inputs:,} inputs, {found} finds, {time.monotonic() - began:.0f} s")
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
