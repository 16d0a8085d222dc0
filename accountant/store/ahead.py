"""Long reads of a ledger on another core: a helper reads rows, hashes them and checks their form.

Where no snapshot is left every event is folded, which takes one process; all that comes before does
not depend on the order, and takes a third of the time. A helper only saves work: where it finds an
event out of order, ends, or hangs, whoever reads goes on alone, and finds out what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from importlib import import_module
from typing import Final, NamedTuple

from accountant.ledger.events import check_canonical
from accountant.ledger.merkle import leaf_hash
from accountant.store import StoreError
from accountant.store.ledgers import Ledgers
from accountant.store.opening import open_ledgers
from accountant.workers.helpers import HelperError, Helpers, Parent, cores

WORTH: Final = 40_000
"""Events that take several times as long to fold as a helper takes to begin."""
OWN: Final = 10_000
"""Events that whoever reads takes on before: until then the helper is loading its modules."""
_PATIENCE: Final = 10.0
"""Seconds without a page after which whoever reads goes on alone: a helper may hang."""
_PAGE: Final = 256
"""Events in a message: they stay in the caches of the processor while they are applied."""


class Page(NamedTuple):
    """Events that follow each other, in canonical form, and the hashes of their leaves."""

    bodies: list[bytes]
    leaves: list[bytes]


Ahead = Callable[[int, int], AbstractContextManager[Iterator[Page]]]
"""Gives the pages of a ledger from one sequence to before another, or fewer."""


class _Asked(NamedTuple):
    url: str
    usable: Collection[int]
    """The cores that the helper may run on."""
    ledger: str
    first: int
    end: int


@contextmanager
def read_ahead(
    url: str, usable: Collection[int], ledger: str, first: int, end: int
) -> Iterator[Iterator[Page]]:
    """Give the pages of a ledger from ``first`` to before ``end``, read by a helper that may run on
    the cores ``usable``: none if they are few, or there is no other core.
    """
    helpers = _begun(_Asked(url, usable, ledger, first, end)) if end - first >= WORTH else None
    if helpers is None:
        yield iter(())
        return
    with helpers:
        yield _pages(helpers)


def _begun(asked: _Asked) -> Helpers | None:
    """Return the helper that reads what is asked; None if there can be none. This thread itself may
    be kept on one core (``runtime/cores.py``).
    """
    if max(cores(), len(asked.usable)) < 2:
        return None
    with suppress(HelperError, OSError), ExitStack() as failing:
        helpers = failing.enter_context(Helpers("accountant.store.ahead", 1))
        helpers.post(asked)
        failing.pop_all()
        return helpers
    return None


def _pages(helpers: Helpers) -> Iterator[Page]:
    with suppress(HelperError):
        while came := helpers.exchange(wait=True, patience=_PATIENCE):
            for _, page in came:
                if page is None:
                    return
                yield page


def _checked(ledgers: Ledgers, asked: _Asked) -> Iterator[Page]:
    """Yield the pages that are asked for, up to an event that is out of order."""
    first = asked.first
    while first < asked.end:
        page = Page([], [])
        for stored in ledgers.read(asked.ledger, first, min(_PAGE, asked.end - first)):
            leaf = leaf_hash(stored.body)
            if stored.sequence != first or leaf != stored.leaf:
                break
            check_canonical(stored.body)
            page.bodies.append(stored.body)
            page.leaves.append(leaf)
            first += 1
        if not page.bodies:
            return
        yield page


def help_parent() -> None:
    """Be the helper, until the parent needs none any more."""
    parent = Parent()
    for asked in parent:
        with suppress(OSError, AttributeError):  # there may be no such call
            os.sched_setaffinity(0, asked.usable)
        _post_pages(parent, asked)


def _post_pages(parent: Parent, asked: _Asked) -> None:
    """Post the pages that are asked for, and None. What is wrong with the rest the parent will find
    out. It may hold the database's lock, for which closing waits: so it is told the end before.
    """
    with closing(open_ledgers(asked.url)) as ledgers:
        with suppress(StoreError, TypeError, ValueError):
            for page in _checked(ledgers, asked):
                parent.post(page)
        parent.post(None)


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.store.ahead").help_parent()
