"""Decisions: ``decide(state, asked, now) -> events``. Pure; the state is left as it is.

``now`` is the stamp of the events to be. Each event answers exactly one command and holds it, so
that ``replay`` can ask again and compare.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from accountant.budget.commands import (
    AdoptPolicy,
    Asked,
    AskGrant,
    CloseSparseVector,
    Command,
    CommitGrant,
    CountAnswers,
    ExpireGrant,
    OpenSparseVector,
    RecordInvocations,
    RegisterDataset,
    RegisterPopulation,
    ReleaseGrant,
    command_from_json,
)
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.judge import Decision, Request, judge, price_all, unplaced
from accountant.budget.policy import LimitRule, Policy
from accountant.budget.population import MAX_CELLS
from accountant.budget.selection import EVERYONE, select
from accountant.budget.state import (
    Grant,
    State,
    lifetime,
    limit_rule,
    matches,
    opens_epoch,
    same_scope,
)
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.mechanisms import Mechanism, SparseVector
from accountant.privacy.units import NOTHING, Charge, Currency, Loss, charge_of

SYSTEM: Final = ":accountant"
"""Who asks for expiries. (No key's name begins with a colon.)"""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same request was answered before, by the event at ``sequence``."""

    sequence: int


def decide(state: State, asked: Asked, now: int) -> list[Event] | Repeated:
    """The events that answer ``asked`` at stamp ``now``; none if it is already so.

    Raises budget.errors.Problem when it cannot be answered; then nothing happens.
    """
    if asked.key is None:
        if asked.command.needs_key:
            raise Invalid(
                "idempotency-key-required",
                "this request can spend: send an Idempotency-Key header, the same for every retry, "
                "so that a retry is never charged twice",
            )
    elif (before := state.answers.get((asked.by, asked.key))) is not None:
        fingerprint, sequence = before
        if fingerprint != asked.fingerprint:
            raise Invalid(
                "idempotency-key-reused",
                f"the key {asked.key!r} was used for another request (event {sequence}); "
                "use a new key for a new request",
                sequence=sequence,
            )
        return Repeated(sequence)
    if not isinstance(asked.command, RegisterPopulation):
        state.people()
    return _DECIDERS[type(asked.command)](state, asked, asked.command, max(now, state.time))


def _event(state: State, asked: Asked, kind: str, now: int, body: dict[str, Any]) -> Event:
    body = {"command": asked.command.to_json()} | body
    if asked.key is not None:
        body["key"] = asked.key
    return Event(state.ledger, state.sequence, kind, now, asked.by, body)


def _population(state: State, asked: Asked, command: RegisterPopulation, now: int) -> list[Event]:
    dimensions = {name: tuple(values) for name, values in sorted(command.dimensions.items())}
    _check_cells(dimensions)
    there = state.population
    if there is None:
        return [_event(state, asked, "population.registered.v1", now, {})]
    fixed = (there.privacy_unit, there.relation, there.membership)
    if fixed != (command.privacy_unit, command.neighbouring, command.membership):
        raise Conflict(
            "population-immutable",
            "privacy unit, neighbouring relation and membership are fixed for the population's "
            f"life (they are: {', '.join(fixed)}); register another population",
        )
    added = _added(dict(there.dimensions), dimensions)
    if not added:
        return []
    return [_event(state, asked, "population.extended.v1", now, {"added": added})]


def _check_cells(dimensions: dict[str, tuple[str, ...]]) -> None:
    for name, values in dimensions.items():
        if len(set(values)) != len(values):
            raise Invalid("duplicate-value", f"dimension {name!r} lists a value twice")
    cells = prod(map(len, dimensions.values()))
    if cells > MAX_CELLS:
        raise Invalid(
            "too-many-cells",
            f"the dimensions make {cells} cells, the most is {MAX_CELLS}; use coarser values",
        )


def _added(
    old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]
) -> dict[str, list[str]]:
    """The values that ``new`` appends. Raises Conflict if it does anything else."""
    if set(old) != set(new):
        raise Conflict(
            "dimensions-append-only",
            f"the dimensions are {', '.join(old) or 'none'}; others need another population",
        )
    added = {}
    for name, values in new.items():
        before = old[name]
        if values[: len(before)] != before:
            raise Conflict(
                "dimensions-append-only",
                f"dimension {name!r} can only get further values at its end",
            )
        if values[len(before) :]:
            added[name] = list(values[len(before) :])
    return added


def _dataset(state: State, asked: Asked, command: RegisterDataset, now: int) -> list[Event]:
    there = state.datasets.get(command.id)
    if there is not None:
        if (there.namespace, there.name) != (command.namespace, command.name):
            raise Conflict(
                "dataset-immutable",
                f"dataset {command.id!r} is {there.namespace} {there.name}; "
                "other data need another id",
            )
        if (there.owner, there.parents) == (command.owner, tuple(command.parents)):
            return []
    return [_event(state, asked, "dataset.registered.v1", now, {})]


def _policy(state: State, asked: Asked, command: AdoptPolicy, now: int) -> list[Event]:
    policy = Policy.model_validate(command.policy)
    if state.adopted and state.adopted.policy == policy:
        return []
    loosened = loosens(state, policy)
    if loosened and command.approved_by in (None, asked.by):
        raise Forbidden(
            "second-name-needed",
            "this policy loosens the one in force ("
            + "; ".join(loosened)
            + "), so a second person has to agree: send the key of another admin or officer in "
            "the header Accountant-Approver",
            loosened=loosened,
        )
    opened = [
        rule.id
        for rule in policy.limits
        if (old := limit_rule(state.adopted, rule.id)) is None or opens_epoch(old, rule)
    ]
    capacities = {}
    for rule in policy.limits:
        capacity = rule.capacity
        units = {"epsilon": str(capacity.epsilon), "delta": str(capacity.own_delta)}
        if capacity.second_currency is not None:
            units[capacity.second_currency.value] = str(capacity.second)
        capacities[rule.id] = units
    body = {"opens_epoch": opened, "loosens": loosened, "capacities": capacities}
    return [_event(state, asked, "policy.adopted.v1", now, body)]


def loosens(state: State, policy: Policy) -> list[str]:
    """In which ways ``policy`` blocks less than the one in force, or forgets what was used."""
    reasons = [
        f"{rule.id} forgets what was used" for rule in policy.limits if _forgets(state, rule)
    ]
    after = {rule.id: rule for rule in policy.rules}
    for old in state.adopted.policy.rules if state.adopted else ():
        new = after.get(old.id)
        if isinstance(old, LimitRule) and isinstance(new, LimitRule):
            if old.action == "block" and not _as_strict(old, new):
                reasons.append(f"{old.id} is raised or changed")
        elif old.action == "block" and new != old:
            reasons.append(f"{old.id} is {'changed' if new else 'removed'}")
    return reasons


def _forgets(state: State, rule: LimitRule) -> bool:
    old = limit_rule(state.adopted, rule.id)
    used = (d for d in state.datasets if lifetime(d) in state.accounts)
    return (
        rule.carry == "none"
        and (old is None or opens_epoch(old, rule))
        and any(matches(rule.datasets, dataset) for dataset in used)
    )


def _as_strict(old: LimitRule, new: LimitRule) -> bool:
    before, now = old.promise, new.promise
    return (
        new.action == "block"
        and same_scope(old, new)
        and old.gate == new.gate
        and now.epsilon <= before.epsilon
        and now.own_delta <= before.own_delta
        and now.gate_delta <= before.gate_delta
    )


def prepare(
    state: State, by: str, command: AskGrant | OpenSparseVector | RecordInvocations
) -> Request:
    """Prices and compiles what is asked. Raises Invalid for unknown datasets or groups."""
    people = state.people()
    state.dataset(command.dataset)
    mechanisms: Sequence[Mechanism] = (
        [command.mechanism] if isinstance(command, OpenSparseVector) else command.mechanisms
    )
    selection = select(people, command.subjects)
    priced = price_all(mechanisms, people.relation)
    misplaced = unplaced(people, selection, mechanisms)
    if misplaced:  # whoever may have moved in or out has lost without bound
        selection = EVERYONE
        priced = tuple(replace(p, charge=charge_of(Loss(None), 1)) for p in priced)
    return Request(
        by=by,
        dataset=command.dataset,
        selection=selection,
        mechanisms=tuple(mechanisms),
        priced=priced,
        purpose=command.purpose,
        justification=command.justification,
        unplaced=misplaced,
    )


def _grant(
    state: State, asked: Asked, command: AskGrant | OpenSparseVector, now: int
) -> list[Event]:
    if isinstance(command, OpenSparseVector) and command.mechanism.count != 1:
        raise Invalid("one-session", "a sparse vector session has count 1; open one for each")
    request = prepare(state, asked.by, command)
    decision = judge(state, request)
    body = _judged(state, request, decision)
    if decision.outcome == "block":
        return [_event(state, asked, "grant.refused.v1", now, body)]
    expires = now + command.ttl_seconds * 1_000_000
    body |= {"grant": f"g{state.sequence}", "expires": rfc3339(expires)}
    return [_event(state, asked, "grant.reserved.v1", now, body)]


def _record(state: State, asked: Asked, command: RecordInvocations, now: int) -> list[Event]:
    request = prepare(state, asked.by, command)
    decision = judge(state, request)
    body = _judged(state, request, decision)
    body["overrun"] = any(
        f.fired and f.action == "block" and f.code == "budget-exceeded" for f in decision.findings
    )
    if request.unplaced:
        body["charged_to"] = "everyone"
    body["decision"]["outcome"] = "allow" if decision.outcome == "allow" else "flag"
    return [_event(state, asked, "invocation.recorded.v1", now, body)]


def _judged(state: State, request: Request, decision: Decision) -> dict[str, Any]:
    return {
        "decision": {"id": f"d{state.sequence}"} | decision.to_json(),
        "cells": request.selection.cells(state.people()),
        "charges": [
            {
                "kind": mechanism.kind,
                "count": mechanism.count,
                "verdict": priced.verdict.value,
                "charge": priced.charge.to_json(),
            }
            for mechanism, priced in zip(request.mechanisms, request.priced, strict=True)
        ],
        "total": request.total.to_json(),
    }


def _own(state: State, asked: Asked, name: str) -> Grant:
    grant = state.grant(name)
    if grant.by != asked.by:
        raise Forbidden(
            "not-your-grant", f"grant {name} belongs to {grant.by}; only that key can settle it"
        )
    return grant


def _open(grant: Grant, now: int) -> None:
    if grant.status == "expired" or grant.due(now):
        raise Conflict(
            "grant-expired",
            f"grant {grant.id} expired at {rfc3339(grant.expires)} and is charged in full",
            expires=rfc3339(grant.expires),
        )
    if grant.status != "reserved":
        raise Conflict("grant-settled", f"grant {grant.id} is already {grant.status}")


def _commit(state: State, asked: Asked, command: CommitGrant, now: int) -> list[Event]:
    grant = _own(state, asked, command.grant)
    if grant.session:
        raise Conflict("is-a-session", f"grant {grant.id} is a sparse vector session; close it")
    final = grant.total
    if command.mechanisms is not None:
        final = _part(state, grant, command.mechanisms)
    return _settle(state, asked, grant, now, "grant.committed.v1", final, {})


def _part(state: State, grant: Grant, mechanisms: Sequence[Mechanism]) -> Charge:
    """What a listed part of ``grant`` costs. Raises Invalid if it is no part: only what was judged
    may be committed, so each mechanism must have been asked for, at least as many times.
    """
    left: Counter[Mechanism] = Counter()
    for mechanism in getattr(command_from_json(grant.command), "mechanisms", ()):
        left[_once(mechanism)] += mechanism.count
    for mechanism in mechanisms:
        reserved = left[_once(mechanism)]
        if mechanism.count > reserved:
            raise Invalid(
                "commit-exceeds-reservation",
                f"grant {grant.id} reserved {reserved} of this {mechanism.kind}, not "
                f"{mechanism.count}: list mechanisms as they were asked for, with the same or a "
                "smaller count, and record anything else that ran with POST …/invocations",
                reserved=reserved,
                committed=mechanism.count,
            )
        left[_once(mechanism)] -= mechanism.count
    prices = price_all(mechanisms, state.people().relation)
    return sum((p.charge for p in prices), start=NOTHING).saturated()


def _once(mechanism: Mechanism) -> Mechanism:
    return mechanism.model_copy(update={"count": 1})


def _settle(
    state: State,
    asked: Asked,
    grant: Grant,
    now: int,
    kind: str,
    final: Charge,
    extra: dict[str, Any],
) -> list[Event]:
    """A grant past its time is charged in full, noticed or not; then a commit is only a note."""
    if grant.due(now):
        expire = ExpireGrant(grant=grant.id)
        [expired] = _expire(state, Asked(SYSTEM, expire), expire, now)
        body = {"command": asked.command.to_json(), "grant": grant.id}
        body |= {"key": asked.key} if asked.key is not None else {}
        note = Event(state.ledger, state.sequence + 1, "grant.noted.v1", now, asked.by, body)
        return [expired, note]
    if grant.status == "expired" and not grant.late_note:
        return [_event(state, asked, "grant.noted.v1", now, {"grant": grant.id})]
    _open(grant, now)
    body = {"grant": grant.id, "charge": final.to_json(), **extra}
    body["returned"] = (grant.total - final).to_json()
    return [_event(state, asked, kind, now, body)]


def _release(state: State, asked: Asked, command: ReleaseGrant, now: int) -> list[Event]:
    grant = _own(state, asked, command.grant)
    _open(grant, now)
    if grant.positives or grant.negatives:
        raise Conflict(
            "session-has-answered",
            f"session {grant.id} has given answers, so it was executed; close it instead",
        )
    body = {"grant": grant.id, "charge": NOTHING.to_json(), "returned": grant.total.to_json()}
    return [_event(state, asked, "grant.released.v1", now, body)]


def _expire(state: State, asked: Asked, command: ExpireGrant, now: int) -> list[Event]:
    grant = state.grant(command.grant)
    if not grant.due(now):
        raise Conflict("not-due", f"grant {grant.id} is not open past its time")
    body = {"grant": grant.id, "charge": grant.total.to_json()}
    return [_event(state, asked, "grant.expired.v1", now, body)]


def _session(state: State, asked: Asked, name: str) -> tuple[Grant, SparseVector]:
    grant = _own(state, asked, name)
    if not grant.session:
        raise Conflict("not-a-session", f"grant {name} is no sparse vector session; commit it")
    return grant, OpenSparseVector.model_validate(
        {k: v for k, v in grant.command.items() if k != "type"}
    ).mechanism


def _count(state: State, asked: Asked, command: CountAnswers, now: int) -> list[Event]:
    grant, mechanism = _session(state, asked, command.grant)
    _open(grant, now)
    most = mechanism.max_positives or 0
    positives = grant.positives + command.positives
    if not (command.positives or command.negatives):
        raise Invalid("nothing-counted", "count at least one answer")
    if grant.positives >= most or positives > most:
        raise Conflict(
            "session-exhausted",
            f"session {grant.id} stops after {most} positives and would have {positives}: give no "
            "further answers, close it, and record any answer given beyond that with POST "
            "…/invocations",
            max_positives=most,
            positives=positives,
        )
    body = {
        "grant": grant.id,
        "positives": positives,
        "negatives": grant.negatives + command.negatives,
    }
    return [_event(state, asked, "sparse_vector.answered.v1", now, body)]


def _close(state: State, asked: Asked, command: CloseSparseVector, now: int) -> list[Event]:
    grant, mechanism = _session(state, asked, command.grant)
    extra = {"positives": grant.positives, "negatives": grant.negatives}
    final = realised(grant, mechanism, state)
    return _settle(state, asked, grant, now, "sparse_vector.closed.v1", final, extra)


def realised(grant: Grant, mechanism: SparseVector, state: State) -> Charge:
    """What a session has cost after its positives.

    The ex-post bound is path-wise, so only the basic currency gives back; the others keep the
    whole charge (theory: mechanisms/sparse_vector.py). What is given back is the difference of the
    derived values, also where a larger claim was booked.
    """
    relation = state.people().relation
    whole = charge_of(mechanism.loss_after(mechanism.max_positives or 0, relation), 1)
    used = charge_of(mechanism.loss_after(grant.positives, relation), 1)
    back = 0
    if not whole.is_infinite(Currency.EPSILON):
        back = whole[Currency.EPSILON] - used[Currency.EPSILON]
    only_epsilon = tuple(back if c is Currency.EPSILON else 0 for c in Currency)
    return grant.total - Charge(only_epsilon)


_DECIDERS: Final[dict[type[Command], Callable[[State, Asked, Any, int], list[Event]]]] = {
    RegisterPopulation: _population,
    RegisterDataset: _dataset,
    AdoptPolicy: _policy,
    AskGrant: _grant,
    OpenSparseVector: _grant,
    RecordInvocations: _record,
    CommitGrant: _commit,
    ReleaseGrant: _release,
    ExpireGrant: _expire,
    CountAnswers: _count,
    CloseSparseVector: _close,
}
