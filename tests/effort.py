"""How many random cases a test tries: enough to meet a new mistake, or with EFFORT=heavy many."""

from __future__ import annotations

import os

HEAVY = os.environ.get("EFFORT") == "heavy"


def examples(usual: int) -> int:
    """Ten times so many cases with EFFORT=heavy (``make test-thorough``), and in CI three fifths of
    them, so that it stays within its quarter of an hour.
    """
    return 10 * usual if HEAVY else max(3 * usual // 5, min(usual, 10))
