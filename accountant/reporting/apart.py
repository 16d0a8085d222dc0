"""Reports of long ledgers, made in a process of their own.

The service answers grants meanwhile, and the memory that a report takes ends with the process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import Final, NamedTuple

from accountant.budget.rules import home_made
from accountant.reporting.files import rendered, report_of
from accountant.runtime import cores
from accountant.runtime.service import Service
from accountant.store import Damaged, StoreError
from accountant.store.ledgers import Ledgers, Signed
from accountant.workers.helpers import HelperError, Helpers, Parent

WORTH: Final = 10_000
"""Events whose report takes longer than a process takes to start."""
_LOWER: Final = 10
"""How much later than the service the process gets its turn on a busy machine (``nice``)."""
_one = Lock()
"""One report at a time: each needs a core."""


class _Asked(NamedTuple):
    url: str
    population: str
    published: Signed | None
    forms: Sequence[str]
    reached: frozenset[str] | None
    cores: Collection[int]


def report_texts(
    service: Service,
    population: str,
    published: Signed | None,
    forms: Sequence[str],
    reached: frozenset[str] | None = None,
) -> dict[str, str]:
    """Return the report in each of ``forms``, for somebody who reaches these populations, by
    default all. Raise StoreError, or NotFound without a ledger.
    """
    service.known(population)
    asked = _Asked(service.ledgers.url, population, published, forms, reached, cores.USABLE)
    if service.head(population).size < WORTH or home_made() or os.name != "posix":
        return _texts(service.ledgers, asked)
    with _one, Helpers("accountant.reporting.apart", 1) as helpers:
        try:
            helpers.post(asked)
            [(_, answer)] = helpers.exchange(wait=True)
        except HelperError as error:
            raise StoreError(f"the report was not made: {error}") from error
    if isinstance(answer, StoreError):
        raise answer
    texts: dict[str, str] = answer
    return texts


def _texts(ledgers: Ledgers, asked: _Asked) -> dict[str, str]:
    report = report_of(ledgers, asked.population, asked.published, asked.reached)
    return {form: rendered(report, form) for form in asked.forms}


def _made(asked: _Asked) -> dict[str, str] | StoreError:
    """Make the report here. Errors are sent by their message: not every one can be pickled."""
    os.nice(_LOWER)
    with suppress(OSError, AttributeError):  # the thread that asks may be kept on one core
        os.sched_setaffinity(0, asked.cores)
    ledgers = Ledgers(asked.url)
    try:
        return _texts(ledgers, asked)
    except StoreError as error:
        return error if type(error) is Damaged else StoreError(str(error))
    except ValueError as error:
        return Damaged(str(error))
    finally:
        ledgers.close()


def help_service() -> None:
    """Make the one report that the parent asks for."""
    parent = Parent()
    parent.post(_made(next(iter(parent))))


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.reporting.apart").help_service()
