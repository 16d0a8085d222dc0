"""The version of the bounds, and the bounds that were corrected.

Booked charges never change: a ledger names the version that decided each of its events, and replay
prices an event by that version. To correct a bound: raise ``CURRENT``, put the old function into
``FORMER`` under its kind and the last version that booked it, where it stays for ever, and write
the new one into the mechanism. ``accountant revalue`` then books the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

CURRENT: Final = 1

Former = Callable[[Any, Any], Any]  # From a mechanism and its relation to one invocation's Loss
FORMER: Final[dict[str, dict[int, Former]]] = {}
"""kind -> the last version that booked it -> that bound. No bound was wrong so far."""

_pricing: ContextVar[int] = ContextVar("engine", default=CURRENT)


@contextmanager
def pricing(version: int) -> Iterator[None]:
    """Price mechanisms, and those inside them, by ``version`` within the context."""
    token = _pricing.set(version)
    try:
        yield
    finally:
        _pricing.reset(token)


def in_force() -> int:
    """Return the version that mechanisms are priced by now."""
    return _pricing.get()


def former_under(kind: str, version: int) -> Former | None:
    """Return the bound that ``version`` used for ``kind``; None if it was not corrected since."""
    if (former := FORMER.get(kind)) is None:
        return None
    later = [last for last in former if last >= version]
    return former[min(later)] if later else None
