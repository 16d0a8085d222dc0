"""What somebody should look into: what ran against rules, rests on trust, or is mute."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from msgspec import Struct

from accountant.ledger.events import rfc3339
from accountant.privacy.units import Currency
from accountant.reporting.desk import Page
from accountant.reporting.schema import NotableFacts, TrustedFacts

MOST: Final = 50
"""Events of one sort that are listed; all are counted."""
_SORTS: Final = {
    "overrun": ("Ran over a limit", "It ran without a grant, or beyond it: the promise is broken."),
    "against_rule": ("Ran against a rule", "It ran, and a rule would have refused it."),
    "understated": ("Claimed too little", "The claim was below what the mechanism costs."),
    "unverifiable": ("Claims that nothing verifies", "The cost rests on the client’s word alone."),
    "expired": ("Never reported on", "What expires is charged in full."),
    "revalued": ("Cost more than was booked", "A bound was corrected; the difference is booked."),
    "attested_new": ("People attested to be new", "They owe nothing of what was released before."),
}


class Sort(Struct, frozen=True):
    """Events of one sort: how many there are in all, and the latest, last first."""

    name: str
    meaning: str
    total: int
    latest: tuple[NotableFacts, ...]


class Silent(Struct, frozen=True):
    """A client whose grants expire and are never reported on."""

    client: str
    expired: int
    open: int


class Findings(Struct, frozen=True):
    """All of a ledger. ``trusted``: what was given back on a client's word."""

    sorts: tuple[Sort, ...]
    silent: tuple[Silent, ...]
    trusted: tuple[TrustedFacts, ...]


def findings(page: Page) -> Findings:
    """Return what somebody should look into."""
    history = page.followed.history
    sorts = []
    for sort, (name, meaning) in _SORTS.items():
        if total := history.total(sort):
            latest = tuple(history.latest(sort, 0, MOST))
            sorts.append(Sort(name, meaning, total, latest))
    held = Counter(one.at.client for one in history.held)
    silent = [
        Silent(client, ends["expired"], held[client])
        for client, ends in history.endings.items()
        if ends["expired"] and not ends["committed"] and not ends["released"]
    ]
    silent.sort(key=lambda one: (-one.expired, one.client))
    return Findings(tuple(sorts), tuple(silent), history.trusted())


class Open(Struct, frozen=True):
    """An open grant: since when, until when, and what it holds. ``bounded``: in some currency, if
    not in epsilon.
    """

    id: str
    client: str
    dataset: str
    epsilon: str
    bounded: bool
    opened: str
    expires: str
    session: bool


class OpenGrants(Struct, frozen=True):
    """The open grants, the oldest first; ``total``: all there are."""

    listed: tuple[Open, ...]
    total: int


def open_grants(page: Page, most: int = 200) -> OpenGrants:
    """Return at most ``most`` open grants, the oldest first."""
    held, opened = page.followed.history.held, page.followed.state.open
    listed = tuple(
        Open(
            id=one.id,
            client=one.by,
            dataset=one.on.spelled
            if isinstance(one.on.spelled, str)
            else ", ".join(one.on.spelled),
            epsilon=one.total.amount(Currency.EPSILON),
            bounded=one.total.is_bounded,
            opened=rfc3339(one.opened),
            expires=rfc3339(one.expires),
            session=bool(one.session),
        )
        for one in (opened[first.grant.id] for first in islice(held, most))
    )
    return OpenGrants(listed, len(held))
