"""How much is tried: little in ``make test``, ten minutes' worth in ``make test-crash``."""

from __future__ import annotations

import os
from typing import TypeVar

HEAVY = os.environ.get("CRASH_EFFORT") == "heavy"
SEED = int(os.environ.get("CRASH_SEED", "20261121"))
"""Where the random moments begin; a failure names it, to be tried again."""

T = TypeVar("T")


def effort(short: T, heavy: T) -> T:
    """The number that fits how much is to be tried."""
    return heavy if HEAVY else short
