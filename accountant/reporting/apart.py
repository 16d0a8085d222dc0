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

from accountant.budget.errors import Invalid, Problem, Unavailable
from accountant.budget.rules import home_made
from accountant.reporting.files import rendered, report_of
from accountant.reporting.periods.making import AskedReport, facts_of
from accountant.reporting.periods.rendering import written
from accountant.runtime import cores
from accountant.runtime.memory import collection_paused
from accountant.runtime.service import Service
from accountant.store import Damaged, StoreError
from accountant.store.ledgers import Ledgers, Signed
from accountant.workers.helpers import HelperError, Helpers, Parent

WORTH: Final = 10_000
"""Events whose report takes longer than a process takes to start."""
_LOWER: Final = 10
"""How much later than the service the process gets its turn on a busy machine (``nice``)."""
_EVENTS: Final = ""
"""Stands beside the forms for the number of events that a report rests on."""
_one = Lock()
"""One report at a time: each needs a core."""


class _Asked(NamedTuple):
    url: str
    population: str
    published: Signed | None
    forms: Sequence[str]
    reached: frozenset[str] | None
    cores: Collection[int]
    period: AskedReport | None = None
    """None: the report of how it stands now."""


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
    url = service.ledgers.url
    asked = _Asked(url, population, published, forms, reached, cores.USABLE)
    return {form: found.decode() for form, found in _answer(service, asked).items()}


class Made(NamedTuple):
    """A report of a period: its bytes, and on how many events it rests."""

    data: bytes
    events: int


def period_report(
    service: Service, population: str, published: Signed | None, asked: AskedReport, form: str
) -> Made:
    """Return the report of a period in a form. Raise StoreError, NotFound without a ledger, Invalid
    for a dataset that was not registered by its end, or Unavailable where no PDF can be made.
    """
    service.known(population)
    url = service.ledgers.url
    wanted = _Asked(url, population, published, [form], frozenset(), cores.USABLE, asked)
    found = _answer(service, wanted)
    return Made(found[form], int(found[_EVENTS]))


def _answer(service: Service, asked: _Asked) -> dict[str, bytes]:
    if service.head(asked.population).size < WORTH or home_made() or os.name != "posix":
        return _texts(service.ledgers, asked)
    with _one, Helpers("accountant.reporting.apart", 1) as helpers:
        try:
            helpers.post(asked)
            [(_, answer)] = helpers.exchange(wait=True)
        except HelperError as error:
            raise StoreError(f"the report was not made: {error}") from error
    if isinstance(answer, StoreError):
        raise answer
    if isinstance(answer, _Wrong):
        raise (Invalid if answer.invalid else Unavailable)(answer.code, answer.detail)
    texts: dict[str, bytes] = answer
    return texts


class _Wrong(NamedTuple):
    """A problem: exceptions with several arguments cannot be pickled."""

    invalid: bool
    code: str
    detail: str


def _texts(ledgers: Ledgers, asked: _Asked) -> dict[str, bytes]:
    if asked.period is not None:
        facts = facts_of(ledgers, asked.population, asked.period, asked.published)
        texts = {form: written(facts, form) for form in asked.forms}
        return texts | {_EVENTS: b"%d" % facts.head.events}
    report = report_of(ledgers, asked.population, asked.published, asked.reached)
    return {form: rendered(report, form).encode() for form in asked.forms}


def _made(asked: _Asked) -> dict[str, bytes] | StoreError | _Wrong:
    """Make the report here. Errors are sent by their message: not every one can be pickled."""
    os.nice(_LOWER)
    with suppress(OSError, AttributeError):  # the thread that asks may be kept on one core
        os.sched_setaffinity(0, asked.cores)
    ledgers = Ledgers(asked.url)
    try:
        with collection_paused():  # the process ends with its answer
            return _texts(ledgers, asked)
    except StoreError as error:
        return error if type(error) is Damaged else StoreError(str(error))
    except Problem as error:
        return _Wrong(isinstance(error, Invalid), error.code, error.detail)
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
