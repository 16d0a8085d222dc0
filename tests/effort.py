"""How many random cases a test tries: enough to meet a new mistake, or with EFFORT=heavy many."""

from __future__ import annotations

import os

HEAVY = os.environ.get("EFFORT") == "heavy"


def examples(usual: int) -> int:
    """So many cases, ten times as many with EFFORT=heavy (``make test-thorough``)."""
    return 10 * usual if HEAVY else usual
