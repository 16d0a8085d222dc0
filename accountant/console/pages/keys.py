"""Keys of programs and people: who may do what, by whose word, since when."""

from __future__ import annotations

from typing import Final

from fastapi.responses import HTMLResponse
from msgspec import Struct

from accountant.auth.keys import Key
from accountant.auth.ring import NEVER, is_new
from accountant.budget.commands import DAY
from accountant.budget.decide.proposing import NEW_KEY
from accountant.budget.facts import SECOND
from accountant.console.access import pages
from accountant.console.facts.proposed import question
from accountant.console.framing import Overseen
from accountant.ledger.events import rfc3339
from accountant.reporting.numbers import counted

router = pages()
_DAYS: Final = NEW_KEY // (DAY * SECOND)
_ROLES: Final = ("admin", "officer", "auditor", "pipeline")


class Held(Struct, frozen=True):
    """A valid key. ``lately``: it was made so short a time ago that it confirms nothing that its
    maker proposed. ``until``: when it ends, if it does; ``rotated``: another secret took its place.
    """

    name: str
    role: str
    makers: tuple[str, ...]
    made: str
    lately: bool
    reached: tuple[str, ...]
    until: str
    rotated: bool
    used: str


class Asked(Struct, frozen=True):
    """A key that was proposed."""

    number: int
    question: str
    by: str
    expires: str


@router.get("/keys")
def show_keys(visit: Overseen) -> HTMLResponse:
    """Show every valid key, those of people who may decide first."""
    credentials, now = visit.service.credentials, visit.now
    held = [_held(key, used, now) for key, used in credentials.listed() if now < key.until]
    held.sort(key=lambda one: (_ROLES.index(one.role), one.name))
    found, stamp = credentials.proposals()
    asked = [
        Asked(one.sequence, question(one.command), one.by, rfc3339(one.expires))
        for one in found
        if one.is_open(stamp)
    ]
    decide = sum(one.role in ("admin", "officer") for one in held)
    lede = f"{counted(decide, 'key may', 'keys may')} decide, and {len(held) - decide} may not."
    return visit.page("keys.html.j2", "keys", held=held, asked=asked, lede=lede, days=_DAYS)


def _held(key: Key, used: int | None, now: int) -> Held:
    return Held(
        name=key.name,
        role=key.role,
        makers=key.makers,
        made=rfc3339(key.made) if key.made else "",
        lately=is_new(key, now),
        reached=() if key.populations is None else tuple(sorted(key.populations)),
        until="" if key.until == NEVER else rfc3339(key.until),
        rotated=bool(key.replaced),
        used="" if used is None else rfc3339(used),
    )
