"""What adapters of training libraries share."""

from __future__ import annotations


class NotReserved(RuntimeError):
    """A step that is not part of the reserved plan, or that nothing is proved of."""
