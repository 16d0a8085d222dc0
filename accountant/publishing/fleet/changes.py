"""What an event changes in which accounts: the charges that the fold books, one by one.

Nothing is priced or decided here. What the fold keeps with a grant is taken from there; the rest
is the difference that the fold made. Whoever adds all changes up again gets the accounts, which
``adding`` holds them to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from accountant.budget.accounts.window import WindowAccount
from accountant.budget.apply import apply, begin, end, read
from accountant.budget.changes import Booked, End, Record, Reserve
from accountant.budget.grants import AccountKey
from accountant.budget.population.selection import Selection
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.units import Axis, Charge
from accountant.publishing.fleet.differences import Picture, differences, pictures

_ANYWHERE: Final = frozenset(
    (
        "population.extended.v1",
        "ledger.carried_over.v1",
        "ledger.recovered.v1",
        "charge.revalued.v1",
    )
)


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
    """Folds ``event`` into ``state``; what that changed, and what windows have passed meanwhile."""
    return [*_passed(state, event.time), *_changed(state, event)]


def _passed(state: State, now: int) -> Iterator[Change]:
    """What counts in a window no longer, by the stamp ``now``."""
    for key, account in state.accounts.items():
        if isinstance(account, WindowAccount):
            known = len(account.passed)
            account.at(now)
            for part in account.passed[known:]:
                for selection, charge in part.charges.items():
                    nothing = Charge().on(charge.axis)
                    yield _change(key, selection, reserved=nothing, spent=nothing - charge)


def _changed(state: State, event: Event) -> list[Change]:
    if event.type in _ANYWHERE:
        return list(_anywhere(state, event))
    if event.type == "policy.adopted.v1":
        return list(_opened(state, event))
    outcome = read(state, event)
    begin(state)
    try:
        apply(state, outcome)
        before = state.journal[-1].before if state.journal else None
    finally:
        end(state)
    return list(_booked(outcome.change, before))


def _booked(change: object, before: Any) -> Iterator[Change]:
    """What a request, or the end of a grant, has booked in each account."""
    nothing = Charge()
    match change:
        case Reserve(grant):
            for key, added in _by_key(before.booked):
                yield _change(key, grant.selection, reserved=added, spent=nothing)
        case Record(selection=selection):
            for key, added in _by_key(before.booked):
                yield _change(key, selection, reserved=nothing, spent=added)
        case End():
            grant, booked = before
            bookings = dict(grant.bookings)
            for key, added in _by_key(booked):
                held = bookings[key]
                back = nothing.on(held.axis) - held
                yield _change(key, grant.selection, reserved=back, spent=held + added)


def _by_key(booked: Iterable[Booked]) -> list[tuple[AccountKey, Charge]]:
    """What was added to each account, in the order of the keys, whichever of them hold one."""
    added = {key: one.added for one in booked for key in one.keys}
    return [(key, added[key]) for key in sorted(added)]


def _change(key: AccountKey, selection: Selection, *, reserved: Charge, spent: Charge) -> Change:
    axis = reserved.axis or spent.axis
    return Change(key, axis, selection, _units(reserved.on(axis)), _units(spent.on(axis)))


def _anywhere(state: State, event: Event) -> Iterator[Change]:
    """An event that may change any account, and not every cell alike."""
    before = pictures(state, event.time)
    apply(state, read(state, event))
    for key, after in pictures(state, event.time).items():
        yield from _since(state, key, before.get(key), after)


def _opened(state: State, event: Event) -> Iterator[Change]:
    """An event that leaves all accounts as they are, and opens new ones that may hold something."""
    before = set(state.accounts)
    apply(state, read(state, event))
    for key, after in pictures(state, event.time).items():
        if key not in before:
            yield from _since(state, key, None, after)


def _since(
    state: State, key: AccountKey, before: Picture | None, after: Picture
) -> Iterator[Change]:
    account = state.accounts[key]
    for selection, reserved, spent in differences(before, after):
        yield Change(key, account.axis, selection, reserved, spent)


def _units(charge: Charge) -> list[int]:
    return [*charge.finite, *charge.infinite]
