"""How many cases a test tries: enough to meet a new mistake, or with EFFORT=heavy many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

HEAVY = os.environ.get("EFFORT") == "heavy"
T = TypeVar("T")


def examples(usual: int) -> int:
    """Ten times so many random cases with EFFORT=heavy (``make test-thorough``), and in CI half of
    them, so that it stays within its quarter of an hour.
    """
    return 10 * usual if HEAVY else max(usual // 2, min(usual, 10))


def some(cases: Sequence[T], one_in: int) -> Sequence[T]:
    """All cases of a list with EFFORT=heavy, and in CI every third, say, from the first one on."""
    return cases if HEAVY else cases[::one_in]
