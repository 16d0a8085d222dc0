"""The form by which a person confirms or refuses: who sees which part of it, and what was sent.

Nothing is decided here: the service says what it would answer, and what it answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from msgspec import Struct
from pydantic import ValidationError

from accountant.api.problems import answer_to
from accountant.auth.keys import Key
from accountant.budget.commands import Role
from accountant.budget.errors import Problem
from accountant.console.access import Form, Visitor, form
from accountant.console.framing import Visit
from accountant.reporting.numbers import minute
from accountant.runtime.service import Service

DECIDE: Final[tuple[Role, ...]] = ("admin", "officer")
"""The roles that decide."""
_sent = form("digest", optional=("decision", "reason"), roles=DECIDE)
_OWN: Final = "same-person"
_STAMP: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_VERBS: Final = {"proposal": "confirm", "request": "approve"}


@dataclass(frozen=True, slots=True)
class Posted:
    """A decision that was sent: by whom, and the fields of the form."""

    visit: Visit
    fields: dict[str, str]

    @property
    def digest(self) -> str:
        """The digest of what was read."""
        return self.fields["digest"]


def _posted(request: Request, sent: Annotated[Form, Depends(_sent)]) -> Posted:
    state = request.app.state
    visit = Visit(sent.visitor, state.service, state.publisher, state.desk)
    return Posted(visit, sent.fields)


Decided = Annotated[Posted, Depends(_posted)]
"""The form of a decision, sent by somebody who may decide."""


def holders(service: Service, population: str | None) -> list[Key]:
    """Return whoever can decide in a population, None for all, or act otherwise there: holders of
    keys and links, and who signed in.
    """
    ring, now = service.credentials.ring()
    links = [one.key for one in ring.links.values()]
    sessions = [one.key for one in ring.entered.values()]
    held = [*ring.by_digest.values(), *links, *sessions]
    found = [one for one in held if now < one.until and _reaches(one, population)]
    return list(dict.fromkeys(found))


def _reaches(key: Key, population: str | None) -> bool:
    return key.populations is None if population is None else key.reaches(population)


class Choice(Struct, frozen=True):
    """What a visitor can do. ``why``: why they cannot confirm; empty if they can."""

    confirm: bool
    refuse: bool
    why: str = ""
    own: bool = False
    """It is the visitor's own."""


class Sent(Struct, frozen=True):
    """What was typed into a form, and what is wrong with it; of a form that is shown first,
    nothing.
    """

    decision: str = ""
    reason: str = ""
    wrong: str = ""
    status: int = 200


def choice(
    who: Visitor, what: str, confirming: Callable[[], Problem | None],
    refusing: Callable[[], Problem | None],
) -> Choice:  # fmt: skip
    """Return what the visitor can do, as the service says. ``what`` is decided: a proposal, say."""
    if who.role not in DECIDE:
        text = f"You have the role {who.role}: you can read this {what}, and do not decide it."
        return Choice(confirm=False, refuse=False, why=text)
    problem = confirming()
    if problem is None:
        return Choice(confirm=True, refuse=True)
    refuse = refusing() is None
    own = problem.code == _OWN
    why = f"You cannot {_VERBS[what]} this: {_ended(problem.detail)}"
    return Choice(confirm=False, refuse=refuse, why=why, own=own)


def answered(
    sent: Posted,
    confirm: Callable[[str | None], Any],
    refuse: Callable[[str], Any],
    *,
    always: bool,
) -> Sent | None:
    """Do what a form says; return it with what is wrong, or None if it is done. ``always``: to
    confirm takes a reason, too.
    """
    decision = sent.fields.get("decision", "")
    reason = sent.fields.get("reason", "").replace("\r\n", "\n").strip()

    def wrong(text: str, status: int = 422) -> Sent:
        return Sent(decision, reason, text, status)

    if decision not in ("confirm", "refuse"):
        return wrong("Nothing was decided yet: choose one of the two.")
    if not reason and (always or decision == "refuse"):
        return wrong("Nothing was decided yet: say why.")
    try:
        if decision == "confirm":
            confirm(reason or None)
        else:
            refuse(reason)
    except ValidationError as error:
        fields = ", ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors()[:3])
        return wrong(f"Nothing was decided: {_ended(fields)}")
    except Problem as problem:
        known = answer_to(problem, "")
        status = 409 if known is None else known.status_code
        return wrong(f"Nothing was decided: {_ended(problem.detail)}", status)
    return None


def _ended(text: str) -> str:
    """Return a text with a full stop, its stamps as pages write them. It may begin with a name,
    which is left as it is.
    """
    text = _STAMP.sub(lambda found: f"{minute(found[0])} UTC", text)
    return text if text.endswith(".") else f"{text}."
