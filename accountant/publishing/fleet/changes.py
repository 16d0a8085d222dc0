"""What an event changes in which accounts: the charges that the fold books, one by one.

Nothing is priced or decided here. What the fold keeps with a grant is taken from there; the rest
is the difference that the fold made. Whoever adds all changes up again gets the accounts, which
``adding`` holds them to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pydantic import TypeAdapter

from accountant.budget.folding import apply
from accountant.budget.grants import AccountKey, Grant
from accountant.budget.selection import EVERYONE, Selection, Subjects, select
from accountant.budget.state import ALL, State, lifetime
from accountant.ledger.events import Event
from accountant.privacy.units import Axis, Charge
from accountant.publishing.fleet.differences import Picture, differences

_SETTLES: Final = frozenset(
    f"{kind}.v1"
    for kind in ("grant.committed", "grant.released", "grant.expired", "sparse_vector.closed")
)
_SPENDS: Final = {"invocation.recorded.v1": "total", "charge.revalued.v1": "more"}
_ANYWHERE: Final = frozenset(
    ("population.extended.v1", "ledger.carried_over.v1", "ledger.recovered.v1")
)
_SUBJECTS: Final[TypeAdapter[Subjects]] = TypeAdapter(Subjects)


class Change(NamedTuple):
    """Units added to every cell of ``selection`` in one account: finite sums in the currencies of
    ``axis``, then numbers of infinite charges.
    """

    key: AccountKey
    axis: Axis
    selection: Selection
    reserved: list[int]
    spent: list[int]


def applied(state: State, event: Event) -> list[Change]:
    """Folds ``event`` into ``state``; what that changed."""
    if event.type == "grant.reserved.v1":
        return list(_reserved(state, event))
    if event.type in _SETTLES:
        return list(_settled(state, event))
    if event.type in _SPENDS:
        return list(_spent(state, event))
    if event.type in _ANYWHERE:
        return list(_anywhere(state, event))
    if event.type == "policy.adopted.v1":
        return list(_opened(state, event))
    apply(state, event)
    return []


def _reserved(state: State, event: Event) -> Iterator[Change]:
    apply(state, event)
    grant = state.open[event.body["grant"]]
    for key, booked in grant.bookings:
        units = _units(booked)
        yield Change(key, booked.axis, grant.selection, units, [0] * len(units))


def _settled(state: State, event: Event) -> Iterator[Change]:
    grant = state.open[event.body["grant"]]
    before = _at_one_cell(state, grant)
    apply(state, event)
    for (key, booked), was, now in zip(
        grant.bookings, before, _at_one_cell(state, grant), strict=True
    ):
        units = _units(booked)
        spent = [unit + b - a for unit, a, b in zip(units, was, now, strict=True)]
        yield Change(key, booked.axis, grant.selection, [-unit for unit in units], spent)


def _at_one_cell(state: State, grant: Grant) -> list[list[int]]:
    """What is used at one of the cells that a grant holds: all of them change alike."""
    one = grant.selection
    if not one.everyone:
        box = tuple(frozenset((min(side),)) for side in one.boxes[0])
        one = Selection(everyone=False, boxes=(box,))
    parts = [state.accounts[key].used.parts(one)[0] for key, _ in grant.bookings]
    return [(part.everyone if one.everyone else part.column(0)).tolist() for part in parts]


def _spent(state: State, event: Event) -> Iterator[Change]:
    command = event.body["command"]
    total = Charge.from_json(event.body[_SPENDS[event.type]])
    by = command.get("by", event.by)  # a revaluation says whose charge it corrects
    keys = [counted.key for counted in state.limits_on(command["dataset"], by)]
    keys += [lifetime(command["dataset"]), lifetime(ALL)]
    selection = _charged(state, event)
    booked = [state.account(key).bounded(total) for key in keys]
    apply(state, event)
    for key, charge in zip(keys, booked, strict=True):
        units = _units(charge)
        yield Change(key, charge.axis, selection, [0] * len(units), units)


def _charged(state: State, event: Event) -> Selection:
    """Whom an event charges that says so itself (docs/evidence.md)."""
    command = event.body["command"]
    everyone = event.body.get("charged_to") == "everyone" or command.get("everyone")
    if everyone or command.get("subjects") is None:
        return EVERYONE
    return select(state.people(), _SUBJECTS.validate_python(command["subjects"]))


def _anywhere(state: State, event: Event) -> Iterator[Change]:
    """An event that may change any account, and not every cell alike."""
    before = {key: Picture.of(account) for key, account in state.accounts.items()}
    apply(state, event)
    for key in state.accounts:
        yield from _since(state, key, before.pop(key, None))


def _opened(state: State, event: Event) -> Iterator[Change]:
    """An event that leaves all accounts as they are, and opens new ones that may hold something."""
    before = set(state.accounts)
    apply(state, event)
    for key in state.accounts:
        if key not in before:
            yield from _since(state, key, None)


def _since(state: State, key: AccountKey, before: Picture | None) -> Iterator[Change]:
    account = state.accounts[key]
    for selection, reserved, spent in differences(before, Picture.of(account)):
        yield Change(key, account.axis, selection, reserved, spent)


def _units(charge: Charge) -> list[int]:
    return [*charge.finite, *charge.infinite]
