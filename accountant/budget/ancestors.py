"""Ancestors that become known late, and what they are charged with then.

A dataset may be registered, or be named as a parent, after others that were made from it have been
used. An answer about these was one about it as well. So the registration charges it with all that
these have used, and its own ancestors too.

**Claim**: from then on an account of a dataset holds, in each currency, no less than the sum of the
charges that its rule counts on the dataset and on all that was made from it, whenever each of these
was charged, and whenever it became known.

*Proof.* Say that before the event the claim holds for what was known to be made from what, and that
it makes a dataset ``a`` an ancestor of some it was not. Each of them was made from a *root*: the
dataset that is registered, if it was known, else one that names it as a parent. What a root has
used holds what all that was made from it has used. So to add the accounts of those roots of which
``a`` was no ancestor is enough; a root that was made from another one of them is in that one's
account already. The sum counts a query over several of them once for each: it is no less.
(Where a version before 0.3 registered an ancestor, the claim does not hold: what this one lacks is
noted, and is charged beside a root that it is, or that it was made from.)

An account of a rule that names both datasets keeps the same currencies at the same orders since the
same moment: it is added as it is, and the rule's line is still one that was fixed before the first
charge that it counts. A rule that does not name the root has no such account. There the root's
lifetime is added, as a sure sum of epsilons, as where a limit is adopted on data that were used
(accounts/epochs.py): it holds all that the rule would have counted. Of a rule that only divides a
budget nothing is added then, for it promises nothing of the data.

Open grants hold in the new ancestors what they hold in a root, and end there too. Only where a sure
sum is added does what they hold count as spent, and is not given back: a reservation bounds what it
becomes. In a window all that was spent counts as spent at the registration. What ran before may be
more than the limit of an ancestor allows. Then nothing more fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import sub
from typing import Final, NamedTuple

from msgspec.structs import replace as changed

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Sums
from accountant.budget.grants import AccountKey
from accountant.budget.outcome import CHARGING
from accountant.budget.population.population import Dataset, TookOver
from accountant.budget.reach import Reach, origins
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import ALL
from accountant.budget.state import State, lifetime
from accountant.ledger.events import Event
from accountant.privacy.units import Axis, Charge

Charged = Mapping[str, Collection[str]]
"""By dataset, those that it is charged with: it has now been found to be an ancestor of them."""
Moving = Sequence[tuple[str, Charge]]
"""Open grants, and what each holds in an account."""


class Related(NamedTuple):
    """What the registration of a dataset says of others."""

    made_from: tuple[str, ...]
    """The registered datasets that its parents are."""
    made_into: tuple[str, ...]
    """Those that name it as a parent, and did so before it was registered."""
    charged_with: Charged
    moved: tuple[str, ...] = ()
    """Limits in whose totals open grants go on holding what they held outside (handlers.py)."""

    @property
    def words(self) -> str:
        """Say who was charged with what; empty if nobody was."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for name, others in sorted(self.charged_with.items()):
            alike.setdefault(tuple(others), []).append(name)
        return "; ".join(
            f"{', '.join(names)} with what had been used of {', '.join(others)}"
            for others, names in alike.items()
        )


def related_in(event: Event) -> Related:
    """Return what an event that registers a dataset says of others. Raises ValueError if it charges
    and is of a type that does not, which others would pass over, or the other way round (ADR 0068).
    """
    body = event.body
    charges, told = event.type == CHARGING, {"charged_with", "orders", "moved"} & body.keys()
    if charges and not (body.get("charged_with") or body.get("moved")):
        raise ValueError(f"event {event.sequence} is a {CHARGING} and charges nothing")
    if told and not charges:
        named = " and ".join(sorted(told))
        raise ValueError(f"event {event.sequence} is a {event.type}, which has no {named}")
    both = tuple(body.get("made_from", ())), tuple(body.get("made_into", ()))
    return Related(*both, body.get("charged_with", {}), tuple(body.get("moved", ())))


def newly_charged(
    state: State, name: str, made_from: Iterable[str], made_into: Collection[str]
) -> dict[str, list[str]]:
    """Return which datasets are charged with what others have used, if ``name`` is registered as
    made from some datasets, and as what others were made from. Those never used are left out.
    """
    every = state.datasets
    roots = made_into if name not in every else [name]
    if not roots:
        return {}
    lacking = {one.id: one.uncharged for one in every.values() if one.uncharged}
    known = {*roots, *lacking}.union(*lacking.values())
    before = {one: origins(every, [one]) for one in known}
    found: dict[str, list[str]] = {}
    for ancestor in sorted({name, *origins(every, made_from)}):
        mine = {one for one in roots if ancestor not in before[one]}
        top = {one for one in mine if not before[one] & mine - {one}}
        lacked = {other for one in lacking if mine & before[one] for other in lacking[one]}
        top |= {other for other in lacked if ancestor not in before[other]}
        if used := sorted(one for one in top if lifetime(one) in state.accounts):
            found[ancestor] = used
    return found


def not_counted(
    state: State, ancestor: str, others: Iterable[str]
) -> Iterator[tuple[LimitRule, AccountKey]]:
    """Yield the limits in force that count on ``ancestor``, and not on one of ``others``, each with
    the lifetime of that one.
    """
    for rule in state.adopted.policy.limits if state.adopted else ():
        if rule.divides or not rule.scope.names_it(ancestor):
            continue
        for other in others:
            source = lifetime(other, rule.unit or "")
            if source in state.accounts and not rule.scope.names_it(other):
                yield rule, source


def charge_ancestors(state: State, charged: Charged, now: int) -> None:
    """Charge datasets with what others have used. All are registered as they are from now on."""
    state.held = None  # grants may have left accounts in this very event
    for ancestor, others in sorted(charged.items()):
        for source, into in [*_alike(state, ancestor, others)]:
            charge_account(state, source, into, now)
        _bring(state, ancestor, others, now)
    for grant in list(state.open.values()):
        on = grant.on
        late = {a for a, others in charged.items() if not {*others}.isdisjoint(on.charged)}
        if more := late.difference(on.charged):
            both = Reach(on.named, tuple(sorted({*on.charged, *more})))
            state.grants.keep(changed(grant, on=both))
    state.held = None


def charge_account(state: State, source: AccountKey, into: AccountKey, now: int) -> None:
    """Add what is used in an account to another that keeps the same. Open grants hold there what
    they hold here, unless they hold something already.
    """
    moving = [
        (grant.id, booked)
        for grant in state.grants.in_order()  # whichever order a rollback has left
        for key, booked in grant.bookings
        if key == source and all(other != into for other, _ in grant.bookings)
    ]
    spent, held = _without(state, source, moving, now)
    state.to_change(into).charge_with(spent, held, now)
    _reserve(state, into, moving, now)


def _without(
    state: State, source: AccountKey, moving: Moving, now: int
) -> tuple[Account, Sums | None]:
    """Return an account without what ``moving`` grants hold there, and what others do."""
    spent, held = state.accounts[source].at(now).copy(), state.reserved().get(source)
    held = held and held.copy()
    for name, booked in moving:
        cells = state.cells(source.unit, state.open[name].selection)
        spent.used.add(cells, booked.finite, booked.infinite, -1)
        spent.bound = list(map(sub, spent.bound, booked.finite))
        if held is not None:
            held.add(cells, booked.finite, booked.infinite, -1)
    return spent, held


def _reserve(state: State, into: AccountKey, moving: Moving, now: int) -> None:
    """Let open grants hold something in one more account."""
    account = state.to_change(into)
    for name, charge in moving:
        grant = state.open[name]
        cells = state.cells(into.unit, grant.selection)
        booked = account.book(cells, charge, reserve=True, now=now)
        state.grants.keep(changed(grant, bookings=(*grant.bookings, (into, booked))))


def _alike(
    state: State, ancestor: str, others: Iterable[str]
) -> Iterator[tuple[AccountKey, AccountKey]]:
    """Yield the accounts of ``others``, each with that of ``ancestor`` which keeps the same."""
    units = ["", *(unit.name for unit in state.people().units)]
    into = {(rule.id, epoch): key for rule, epoch, key in _places(state, ancestor)}
    for other in others:
        for unit in units:
            if (source := lifetime(other, unit)) in state.accounts:
                yield source, lifetime(ancestor, unit)
        for key in state.accounts:
            if key.dataset == other and (place := into.get((key.rule, key.epoch))) is not None:
                yield key, key._replace(dataset=place)


def _places(state: State, ancestor: str) -> Iterator[tuple[LimitRule, int, str]]:
    """Yield the limits in force that count on a dataset, with the numbers of their epochs and the
    place where they count it: the total of those across datasets, if it is in their scope.
    """
    if (adopted := state.adopted) is None:
        return
    for rule in adopted.policy.limits:
        if rule.scope.names_it(ancestor):
            total = rule.across and rule.scope.holds(state.datasets[ancestor])
            yield rule, adopted.epochs[rule.id].number, ALL if total else ancestor


def _bring(state: State, ancestor: str, others: Iterable[str], now: int) -> None:
    """Charge the accounts of limits that name ``ancestor`` and not others, with sure sums."""
    epochs = state.adopted.epochs if state.adopted else {}
    places = {rule.id: place for rule, _, place in _places(state, ancestor)}
    brought: dict[AccountKey, Account] = {}
    holding: dict[AccountKey, dict[str, Charge]] = {}
    for rule, source in [*not_counted(state, ancestor, others)]:
        epoch = epochs[rule.id]
        into = AccountKey(rule.id, epoch.number, places[rule.id], unit=rule.unit or "")
        mine = brought.setdefault(into, Account.empty(state.space, epoch.axis))
        mine.absorb(state.accounts[source], state.reserved().get(source))
        if rule.span:
            holding.setdefault(into, {}).update(_running(state, source, into, epoch.axis))
    for into, account in brought.items():
        for currency, each in epochs[into.rule].per_epsilon():
            account.restate(currency, each)
        state.to_change(into).charge_with(account, None, now)
        _reserve(state, into, [*holding.get(into, {}).items()], now)


def _running(
    state: State, source: AccountKey, into: AccountKey, axis: Axis
) -> Iterator[tuple[str, Charge]]:
    """Yield what open grants that hold ``source`` may still spend in a window that does not: it
    counts from when it is spent, which may be later than the registration. One that was priced
    before the window's epoch, and lacks a currency of it, is no part of what the window promises.
    """
    for grant in state.grants.in_order():
        keys, charge = [key for key, _ in grant.bookings], grant.bill.to(into.unit)
        if source in keys and into not in keys and {*axis} <= {*charge.axis}:
            yield grant.id, charge


def note(state: State, sequence: int, charged: Charged, due: Charged) -> None:
    """Note with each dataset what the event at ``sequence`` charged it with, and what was due and
    was not.
    """
    for name in {*charged, *due}:
        one, mine = state.datasets[name], tuple(charged.get(name, ()))
        missing = {*one.uncharged, *due.get(name, ())} - {*mine}
        took = (*one.took_over, TookOver(sequence, mine)) if mine else one.took_over
        noted = replace(one, took_over=took, uncharged=tuple(sorted(missing)))
        state.datasets[name] = noted


LACKS: Final = (
    "dataset {0} is not charged with what had been used of {1} before it was known that this was "
    "made from {0}: a version before 0.3 registered it. To charge {0}, register {1} without the "
    "parent that leads to {0}, which takes two people, and then with it again."
)
"""What is told of a dataset that ``uncharged`` finds."""


def uncharged(datasets: Mapping[str, Dataset]) -> dict[str, list[str]]:
    """Return which datasets are not charged with what others had used."""
    return {name: list(one.uncharged) for name, one in sorted(datasets.items()) if one.uncharged}
