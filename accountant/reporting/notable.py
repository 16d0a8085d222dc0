"""Notable events: of which sorts an event is, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from accountant.budget.explain import explain
from accountant.budget.rules.base import Action, Compared, Finding
from accountant.budget.rules.relaxed import RELAXED
from accountant.budget.state import State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import Charge, Currency
from accountant.reporting.packing import Pack, Unpack, Written
from accountant.reporting.schema import NotableFacts
from accountant.reporting.tallies import Names, NamesKept
from accountant.reporting.texts import closed
from accountant.reporting.words import groups_in_words, shortened

UNVERIFIABLE: Final = "unverifiable-claim"
_ONLY_FLAGS: Final = frozenset({UNVERIFIABLE, RELAXED})
"""Codes of what never blocks, whatever the rule's action is."""

_LISTED: Final[dict[str, Callable[[Compared | Finding], bool]]] = {
    "overrun": lambda one: one.action == "block" and one.code == "budget-exceeded",
    "against_rule": lambda one: one.action == "block" and one.code != "budget-exceeded",
    "blocked": lambda one: one.action == "block",
    "flagged": lambda one: one.action != "block" and one.code != UNVERIFIABLE,
    "unverifiable": lambda one: one.code == UNVERIFIABLE,
    "understated": lambda one: one.code == "claim-understated",
}
"""The rules that put a judged event among those of a sort, if they fire."""
SORTS: Final = (*_LISTED, "expired", "given_back", "revalued", "attested_new")

Told = tuple[tuple[str, ...], tuple[str, ...]]
"""What is said of a notable event, in pieces, and the rules behind it."""
Said = Told | Callable[[], Told]
"""This, or a function that returns it, called only if the event is listed."""


class Noted(NamedTuple):
    """A notable event, and what is said of it once it is listed."""

    sequence: int
    time: int
    at: Names
    charge: Charge
    said: Said

    @property
    def told(self) -> Told:
        """What is said of it."""
        return self.said() if callable(self.said) else self.said


class NotedKept(Struct, frozen=True, array_like=True):
    """A notable event, to write it down."""

    sequence: int
    time: int
    at: NamesKept
    charge: int
    pieces: tuple[Written, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, one: Noted, pack: Pack) -> NotedKept:
        """Return a notable event as it is written."""
        pieces, rules = one.told
        at, charge = NamesKept.of(one.at, pack), pack.charge(one.charge)
        return cls(one.sequence, one.time, at, charge, tuple(map(pack.text, pieces)), rules)

    def noted(self, unpack: Unpack) -> Noted:
        """Return the notable event."""
        at, charge = self.at.names(unpack), unpack.charge(self.charge)
        return Noted(self.sequence, self.time, at, charge, (unpack.texts(self.pieces), self.rules))


def notable(one: Noted) -> NotableFacts:
    """Return a notable event as the report lists it."""
    at, charge, (pieces, rules) = one.at, one.charge, one.told
    return NotableFacts(
        sequence=one.sequence,
        time=rfc3339(one.time),
        client=at.client,
        dataset=", ".join(at.on.named),
        subjects=groups_in_words(at.subjects),
        epsilon=charge.amount(Currency.EPSILON),
        bounded=charge.is_bounded,
        delta=charge.amount(Currency.DELTA),
        purpose=str(at.purpose),
        rules=rules,
        text=shortened("".join(pieces), 400),
    )


def sorts_of(state: State, fired: Iterable[tuple[str, str]], *, refused: bool) -> list[str]:
    """Return the sorts of a judged event on which rules ``fired``, given as (rule, code)."""
    policy = state.adopted.policy.rules if state.adopted else ()
    actions = {rule.id: rule.action for rule in policy}

    def action(rule: str, code: str) -> Action:
        return "flag" if code in _ONLY_FLAGS else actions.get(rule, "block")

    rules = [Compared(rule, action(rule, code), True, code) for rule, code in fired]
    sorts = [sort for sort, lists in _LISTED.items() if any(map(lists, rules))]
    if refused:
        return [sort for sort in sorts if sort in ("blocked", "understated")]
    # What has already run is not blocked but an overrun.
    hidden = ("blocked", "flagged") if "blocked" in sorts else ()
    return [sort for sort in sorts if sort not in hidden]


def explained(sort: str, state: State, event: Event) -> Callable[[], Told]:
    """Return a function that renders the decision of ``event``, with the policy of this moment. A
    finding quotes no text that can be erased.
    """
    adopted, people, data = state.adopted, state.people(), state.datasets
    engine = state.custody.engine_at(event.sequence)

    def text() -> Told:
        if sort == "understated":
            return ("refused" if event.type == "grant.refused.v1" else "recorded",), ()
        findings = explain(closed(event), adopted, people, engine, data).decision.findings
        found = [one for one in findings if one.fired and _LISTED[sort](one)]
        if sort == "unverifiable":
            return ("; ".join(dict.fromkeys(one.text for one in found)),), ()
        return ("; ".join(one.text for one in found),), tuple(one.rule for one in found)

    return text
