"""Handlers of events about the ledger as a whole: registrations, adoptions, custody, corrections.

Nothing here can be taken back; a transaction begins before such an event is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from msgspec.structs import replace as changed

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.epochs import (
    Adopted,
    Epoch,
    Start,
    next_epoch,
    start_of,
    stated_orders,
)
from accountant.budget.accounts.growing import Growth, by_class, grow, many
from accountant.budget.accounts.unlocking import Arrivals, born
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.ancestors import (
    charge_account,
    charge_ancestors,
    newly_charged,
    note,
    related_in,
)
from accountant.budget.bill import per_in
from accountant.budget.changes import Record
from accountant.budget.commands import (
    CarriedAccount,
    CarryOver,
    FurtherUnit,
    command_from_json,
    units_of,
)
from accountant.budget.commands.plain import read_subjects
from accountant.budget.custody.custody import AcceptedTime, SigningKey
from accountant.budget.grants import Grant
from accountant.budget.outcome import REGISTRATIONS
from accountant.budget.policy import Policy
from accountant.budget.population.population import (
    Dataset,
    Former,
    LabelPairs,
    Membership,
    Population,
)
from accountant.budget.population.selection import EVERYONE, LASTING, Selection, reaching, select
from accountant.budget.reach import by_now, named_in
from accountant.budget.request import selected
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import ALL
from accountant.budget.state import AccountKey, State, account_key, lifetime, outside_key
from accountant.ledger.events import Entry, Event, microseconds
from accountant.privacy import engine as bounds
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.further_units import Unit
from accountant.privacy.units import SURE, Charge


def selection_of(state: State, subjects: Any) -> Selection:
    """Return the compiled subject group of a command as an event holds it, as a document or its
    bytes (``Raw``); None is everyone.
    """
    if subjects is None:
        return EVERYONE
    return selected(state.people(), read_subjects(subjects))


def _register_population(state: State, event: Event) -> None:
    body = event.body["command"]
    state.population = Population(
        name=state.ledger,
        privacy_unit=body["privacy_unit"],
        relation=Relation(body["neighbouring"]),
        membership=Membership(body["membership"]),
        dimensions=tuple((k, tuple(v)) for k, v in sorted(body.get("dimensions", {}).items())),
    ).explained(body.get("fixed", {}))
    shape = state.population.shape
    state.classes = Classes(shape) if many(shape) else None
    _state_units(state, body, event.time)


def _begin_lifetimes(state: State, unit: Unit, now: int) -> None:
    """Open the lifetimes of a unit that is stated late with what was charged to first units before,
    none of it by a grant that is open (privacy/mechanisms/further_units.py has the theorem).
    """
    steps = unit.steps(state.people().relation)
    for key in [key for key in state.accounts if not (key.rule or key.unit)]:
        before, later = state.accounts[key], state.to_change(key._replace(unit=unit.name))
        if unit.group:  # its members may be in several cells
            most = Charge(SURE, tuple(before.used.most()), tuple(before.used.most_infinite()))
            before = Account.empty(before.used.space)
            before.book(LASTING, most, reserve=False, now=now)
        for _ in range(steps):
            later.absorb(before, None)


def _state_units(state: State, command: Mapping[str, Any], now: int) -> None:
    people, read = state.people(), FurtherUnit.model_validate
    stated = {name: read(one) for name, one in command.get("units", {}).items()}
    known = {unit.name for unit in people.units}
    new = tuple(unit for unit in units_of(stated) if unit.name not in known)
    if new:
        state.population = people.stating(new)
        for unit in new:
            _begin_lifetimes(state, unit, now)
        if state.adopted is not None:
            state.adopted = replace(state.adopted)  # routes are found anew


def _extend_population(state: State, event: Event) -> None:
    command = event.body["command"]
    inherit = not command.get("attested_new", False)
    state.population = state.people().explained(command.get("fixed", {}))
    _state_units(state, command, event.time)
    for dimension, values in event.body["added"].items():
        population = state.people()
        axis = population.axis(dimension)
        if not inherit and not population.exchanges:
            state.accounts.leave(state.reserved(), event.time)
            state.held = None
        after = population.extended(dimension, tuple(values), event.time)
        growth = _growth(state, after, axis, inherit=inherit)
        for account in state.accounts.distinct():
            account.at(event.time).extend(axis, len(values), inherit, growth)
        for arrived in state.arrivals.values():  # nobody has asked for the new cells yet
            arrived.counts.to_cells([0], [0])
            arrived.counts.extend(axis, len(values), False, growth)
        state.population, state.classes = after, growth and growth.classes
        for grant in state.grants.in_order():
            _widen(state, grant, dimension, values, inherit, event.time)
        if inherit:
            _inherit(state, dimension, values, event.time)


def _growth(state: State, after: Population, axis: int, *, inherit: bool) -> Growth | None:
    """Return how sums by class grow to the population ``after``; None if they are by cell. Where
    there will be many cells they are by class from now on.
    """
    before = state.people()
    if state.classes is None and many(after.shape):
        every = [account.used for account in state.accounts.distinct()]
        every += [arrived.counts for arrived in state.arrivals.values()]
        state.classes = by_class(before.shape, every, born(before.shape, before.grown))
    if state.classes is None:
        return None
    by = after.shape[axis] - before.shape[axis]
    inherit = inherit and not all(one.used.flat for one in state.accounts.values())
    return grow(state.classes, axis, by, inherit, after.grown[-1][-1])


def _inherit(state: State, dimension: str, values: list[str], now: int) -> None:
    """In a window, treat what new cells inherited as spent now, so that it expires with it."""
    state.held = None
    reserved, new = state.reserved(), select(state.people(), {dimension: values})
    for key, account in state.accounts.items():
        if isinstance(account, WindowAccount):
            account.inherit(new, reserved.get(key), now)


def _widen(
    state: State, grant: Grant, dimension: str, values: list[str], inherited: bool, now: int
) -> None:
    """Extend an open grant whose group does not name ``dimension`` to the new values: what it runs
    from now on reaches their members. A rule that does not hold the reservation counts it there as
    spent.
    """
    document = grant.document
    asked = command_from_json(document)
    new = reaching(state.people(), getattr(asked, "subjects", None), dimension, values)
    if grant.selection.everyone or not new.boxes:
        return
    holding, spans = dict(grant.bookings), state.people().spans  # which is charged to everyone
    if not inherited:
        for key, booked in grant.bookings:
            if key.unit not in spans:
                state.accounts.alone(key).widen(new, booked)
        asks = document.get("purpose"), document.get("allotment")
        for key in state.route(grant.on.charged, grant.by, *asks).keys:
            if key not in holding and key.unit not in spans:
                charge = grant.bill.to(key.unit)
                state.to_change(key).book(new, charge, reserve=False, now=now)
    state.grants.keep(changed(grant, selection=grant.selection | new))


def _register_dataset(state: State, event: Event) -> None:
    body, related = event.body["command"], related_in(event)
    due = newly_charged(state, body["id"], related.made_from, related.made_into)
    there = state.datasets.get(body["id"])
    stated = body if "also" in body or there is None else vars(there)
    also = tuple(stated.get("also", ()))
    before = there.confirmed_by if there else None
    owner, labels = body.get("owner"), labels_after(there, body.get("labels"))
    former = there.former if there else ()
    if there is not None and (there.owner, there.labels) != (owner, labels):
        former += (Former(event.sequence, there.owner, there.labels),)
    now = state.datasets[body["id"]] = Dataset(
        id=body["id"],
        namespace=body["namespace"],
        name=body["name"],
        owner=owner,
        parents=tuple(body.get("parents", ())),
        also=also,
        confirmed_by=event.by if "also" in body else before,
        sources=related.made_from,
        labels=labels,
        took_over=there.took_over if there else (),
        uncharged=there.uncharged if there else (),
        former=former,
    )
    for name in related.made_into:
        child = state.datasets[name]
        state.datasets[name] = replace(child, sources=tuple(sorted({*child.sources, body["id"]})))
    if state.adopted is not None:
        if there is not None:
            _come_in(state, state.adopted, there, now, event.time, related.moved)
        state.adopted = replace(state.adopted)  # routes are found anew; readers keep theirs
    charge_ancestors(state, related.charged_with, event.time)
    note(state, event.sequence, related.charged_with, due)


def labels_after(there: Dataset | None, stated: Mapping[str, str] | None) -> LabelPairs:
    """Return the labels of a dataset that is registered with those ``stated``; those of before if
    none are.
    """
    if stated is None:
        return there.labels if there else ()
    return tuple(sorted(stated.items()))


def coming_in(
    state: State, adopted: Adopted, before: Dataset, after: Dataset
) -> dict[AccountKey, AccountKey]:
    """Return the accounts that keep what a dataset was used for outside of the scope of limits
    across datasets which it comes into the scope of, each with the total that it comes into.
    """
    into: dict[AccountKey, AccountKey] = {}
    for rule in adopted.policy.limits:
        if rule.across and rule.scope.holds(after) and not rule.scope.holds(before):
            number = adopted.epochs[rule.id].number
            into |= {
                key: key._replace(dataset=ALL)
                for key in _own(state, rule, number)
                if key.dataset == after.id
            }
    return into


def _come_in(
    state: State,
    adopted: Adopted,
    before: Dataset,
    after: Dataset,
    now: int,
    moved: Collection[str],
) -> None:
    """Move what the dataset was used for outside of the scope of limits across datasets that it
    comes into the scope of into their totals (rules/limit.py). Open grants no longer hold it; but
    in the totals of limits that are ``moved`` they hold what they held outside.
    """
    into = coming_in(state, adopted, before, after)
    if not into:
        return
    state.held = None
    for outside, total in into.items():
        if outside.rule in moved:
            charge_account(state, outside, total, now)
            state.held = None
        else:
            state.to_change(total).gain(state.accounts.alone(outside), now)
        state.accounts[outside] = adopted.epochs[outside.rule].opens(state.space)
    for grant in list(state.open.values()):
        kept = tuple(pair for pair in grant.bookings if pair[0] not in into)
        if len(kept) < len(grant.bookings):
            state.grants.keep(changed(grant, bookings=kept))


def _adopt_policy(state: State, event: Event) -> None:
    policy = Policy.stored(event.body["command"]["policy"])
    before = state.adopted
    epochs: dict[str, Epoch] = {}
    arrivals: dict[AccountKey, Arrivals] = {}
    for rule in policy.limits:
        number = state.last_epoch.get(rule.id, 0) + 1
        start = start_of(before, rule, used=is_used(state, rule))
        orders = stated_orders(rule, event.body["epochs"][rule.id])
        epoch = next_epoch(before, rule, start, orders, number, event.time)
        state.last_epoch[rule.id] = epoch.number
        if before and start is Start.CARRIED:
            carried = _carry(state, rule, before.epochs[rule.id].number, epoch.number)
        else:
            carried = _bring(state, rule, epoch, sources_of(state, rule, start))
        epochs[rule.id] = replace(epoch, carried=carried) if carried else epoch
        if before and start not in (Start.EMPTY, Start.BROUGHT) and rule.per_request:
            arrivals |= {
                key._replace(epoch=epoch.number): arrived
                for key, arrived in state.arrivals.items()
                if (key.rule, key.epoch) == (rule.id, before.epochs[rule.id].number)
            }
    state.arrivals = arrivals
    state.accounts.share()
    rules = {rule.id: rule for rule in before.policy.remembering} if before else {}
    state.memories = {
        rule.id: rule.begins(state.memories.get(rule.id), rules[rule.id])
        for rule in policy.remembering
        if rule.id in rules
    }
    for kept in policy.remembering:
        kept.check_json(state.memories.get(kept.id), "begins with")
    _set_custody(state, policies=(*state.custody.policies, event.sequence))
    state.adopted = Adopted(policy, event.body["command"]["source_digest"], event.sequence, epochs)


def is_used(state: State, rule: LimitRule) -> bool:
    """Return whether anything was ever booked in the epoch that a rule of this name is in."""
    return bool(_own(state, rule, state.last_epoch.get(rule.id, 0)))


def sources_of(state: State, rule: LimitRule, start: Start) -> list[AccountKey]:
    """Return the accounts whose sums of epsilons and deltas a new epoch of ``rule`` starts from."""
    if start is Start.CONVERTED and state.adopted is not None:
        return _own(state, rule, state.adopted.epochs[rule.id].number)
    if start is not Start.BROUGHT or rule.divides:  # a sub-limit promises nothing of the data
        return []
    names = rule.scope.names_it  # what may come into its scope counts as well
    unit = rule.unit or ""
    lifetimes = [lifetime(name, unit) for name in sorted(state.datasets) if names(name)]
    return [key for key in lifetimes if key in state.accounts]


def _own(state: State, rule: LimitRule, epoch: int) -> list[AccountKey]:
    return [key for key in state.accounts if (key.rule, key.epoch) == (rule.id, epoch)]


def _carry(state: State, rule: LimitRule, old: int, new: int) -> bool:
    """Copy the accounts of epoch ``old``, with open reservations. Returns whether it had any."""
    keys = {key: key._replace(epoch=new) for key in _own(state, rule, old)}
    for key, after in keys.items():
        # Their cells are copied when one of the two changes: of a million cells that takes long.
        state.accounts[after] = state.accounts[key].frozen(whole=True)
    for grant in list(state.open.values()):
        also = tuple((keys[key], booked) for key, booked in grant.bookings if key in keys)
        if also:
            state.grants.keep(changed(grant, bookings=grant.bookings + also))
    return bool(keys)


def _bring(state: State, rule: LimitRule, epoch: Epoch, sources: list[AccountKey]) -> bool:
    """Open accounts that start from what was used or reserved in ``sources``, as a plain sum of
    epsilons. Returns whether there were any.
    """
    brought: dict[AccountKey, Account] = {}
    reserved = state.reserved() if sources else {}
    for source in sources:
        account = state.accounts[source]
        key = _successor(state, rule, epoch, source)
        opened = brought.setdefault(key, Account.empty(account.used.space, epoch.axis))
        opened.absorb(account, reserved.get(source))
    for currency, each in epoch.per_epsilon():
        for account in brought.values():
            account.restate(currency, each)
    for key, account in brought.items():
        state.accounts[key] = account
    return bool(brought)


def _successor(state: State, rule: LimitRule, epoch: Epoch, source: AccountKey) -> AccountKey:
    """Return the account in ``epoch`` of ``rule`` that starts from ``source``: one of the rule, or
    the lifetime of a dataset.
    """
    if source.rule:
        return source._replace(epoch=epoch.number)
    inside = rule.scope.holds(state.datasets[source.dataset])
    find = account_key if inside else outside_key
    return find(rule, epoch.number, source.dataset, source.client, source.purpose)


def _revalue(state: State, event: Event) -> None:
    command = event.body["command"]
    selection = (
        EVERYONE if command.get("everyone") else selection_of(state, command.get("subjects"))
    )
    grant = state.grants.get(f"g{command['event']}")
    if grant is not None and grant.status == "expired":
        selection = selection.to_last()
    more, per = Charge.from_json(event.body["more"]), per_in(event.body)
    charged = by_now(state.datasets, named_in(command["dataset"]), command["event"])
    about = charged, command["by"], selection
    asked = command.get("for_purpose"), command.get("for_allotment")
    booked = Record(*about, more, *asked, corrects=True, per=per)
    booked.fold(state, Entry.of(event))
    state.revalued[command["event"]] = state.custody.engine


def _set_custody(state: State, **fields: Any) -> None:
    state.custody = replace(state.custody, **fields)


def _adopt_key(state: State, event: Event) -> None:
    key = SigningKey(event.sequence, event.body["command"]["key"])
    _set_custody(state, keys=(*state.custody.keys, key))


def _carry_over(state: State, event: Event) -> None:
    fields = {name: v for name, v in event.body["command"].items() if name != "type"}
    for carried in CarryOver.model_validate(fields).accounts:
        _lift(state, carried, event.time)


def _lift(state: State, carried: CarriedAccount, now: int) -> None:
    """Raise an account. One of an epoch that is not in force is no limit now and is left out: a
    rule that is adopted again starts from the lifetimes, which are always raised.
    """
    whose = carried.client, carried.unit, carried.purpose
    key = AccountKey(carried.rule, carried.epoch, carried.dataset, *whose)
    epoch = state.adopted.epochs.get(key.rule) if state.adopted else None
    if key.rule and (epoch is None or epoch.number != key.epoch):
        return
    account = state.to_change(key)
    least = Charge.from_json(carried.used).on(account.axis).saturated()
    for grant in list(state.open.values()):
        for held_in, booked in grant.bookings:
            if held_in == key:  # it may be among the spending of lost events
                account.release(state.cells(key.unit, grant.selection), booked, now)
                kept = tuple(pair for pair in grant.bookings if pair[0] != key)
                state.grants.keep(changed(grant, bookings=kept))
    account.lift(least, now)


def _recover(state: State, event: Event) -> None:
    for grant in list(state.open.values()):
        for account, [key, *_], booked in state.accounts.holding(grant.bookings):
            cells = state.cells(key.unit, grant.selection).to_last()
            account.settle(cells, booked, grant.bill.to(key.unit), event.time)
        state.grants.settle(grant, "expired", event.sequence)
    _set_custody(state, recovered=event.sequence, recoveries=state.custody.recoveries + 1)


def _adopt_engine(state: State, event: Event) -> None:
    version = event.body["command"]["version"]
    if version > bounds.CURRENT:
        raise ValueError(
            f"event {event.sequence} was decided by version {version} of the bounds, and this "
            f"program knows up to {bounds.CURRENT}: take a later one"
        )
    _set_custody(state, engines=(*state.custody.engines, (event.sequence, version)))


def _accept_time(state: State, event: Event) -> None:
    clock = microseconds(event.body["command"]["confirms"]["shown"])
    _set_custody(state, accepted=AcceptedTime(event.sequence, clock, event.time))


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "population.registered.v1": _register_population,
    "population.extended.v1": _extend_population,
    **dict.fromkeys(REGISTRATIONS, _register_dataset),
    "policy.adopted.v1": _adopt_policy,
    "charge.revalued.v1": _revalue,
    "signing_key.adopted.v1": _adopt_key,
    "publication.stopped.v1": lambda state, event: _set_custody(state, stopped=event.sequence),
    "publication.resumed.v1": lambda state, _: _set_custody(state, stopped=None),
    "ledger.carried_over.v1": _carry_over,
    "ledger.recovered.v1": _recover,
    "text.erased.v1": lambda state, _: None,  # the event that held its digest stays
    "report.filed.v1": lambda state, _: None,
    "ledger.verified.v1": lambda state, _: None,
    "engine.adopted.v1": _adopt_engine,
    "clock.accepted.v1": _accept_time,
}
"""What each type of event changes in a state."""
