"""The report, built in one pass over the events, and a function of them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar

from msgspec import Struct

from accountant.budget.depletion import bounds, relaxed_in_words
from accountant.budget.population.population import Population
from accountant.budget.rules.relaxed import Larger
from accountant.budget.state import ALL, AccountKey, Counted, State
from accountant.ledger.events import rfc3339
from accountant.privacy.filters import BASIC, FILTERS
from accountant.privacy.units import NOTHING, Currency
from accountant.reporting import schema, words
from accountant.reporting.counting import Basis
from accountant.reporting.following import Followed
from accountant.reporting.history import History
from accountant.reporting.notable import SORTS
from accountant.reporting.peak_cell import Columns, Ruler
from accountant.reporting.statement import Balance, Total, balances, lifetime_sums, line, scopes
from accountant.reporting.tallies import HEADINGS
from accountant.reporting.texts import Texts
from accountant.reporting.verdict import verdict
from accountant.reporting.waits import waits
from accountant.store.ledgers import Signed, Stored, Use

Facts = TypeVar("Facts", bound=Struct)
MOST_RESERVATIONS: Final = 200
MOST_GROUPS: Final = 10_000
"""Groups of a dimension that a report lists, the most used ones."""


def build_report(
    ledger: str,
    stored: Iterable[Stored],
    texts: Texts | None = None,
    published: Signed | None = None,
    elsewhere: Mapping[str, Sequence[Use]] | None = None,
) -> schema.Report:
    """Return the report of ``ledger`` after the events in ``stored``, read once, in order.

    Without ``texts`` it shows where texts are sealed; ``published`` is the last published
    checkpoint; ``elsewhere`` are the datasets of other ledgers that are now the same data, by
    dataset. Raise ValueError if an event is not canonical or does not follow the one before.
    """
    texts, followed = texts or Texts(), Followed(ledger)
    followed.follow(stored, texts, published)
    return report(followed, texts, elsewhere or {})


def report(
    followed: Followed, texts: Texts, elsewhere: Mapping[str, Sequence[Use]]
) -> schema.Report:
    """Return the report of a ledger as far as it was followed."""
    state, history = followed.state, followed.history
    people, facts = state.population, followed.custody.facts(state)
    limits = tuple(standing(state, counted) for counted in scopes(state)) if people else ()
    data = tuple(
        _dataset(state, history, limits, name, elsewhere.get(name, ()))
        for name in sorted(state.datasets)
    )
    return schema.Report(
        format=schema.FORMAT,
        ledger_name=state.ledger,
        verdict=verdict(state, facts, data, limits, history),
        population=_population(people) if people else None,
        datasets=data,
        limits=limits,
        lifetimes=lifetimes(state) if people else (),
        series=followed.burndowns.series(state),
        notable=history.seen(),
        trusted=history.trusted(),
        waits=waits(state, texts) if people else schema.WaitsFacts(0, ()),
        relaxed=history.relaxed.facts(),
        policy=_policy(state, history),
        formulas=_formulas(state),
        notes=tuple(words.about(note, people) for note in words.prose()["notes"]) if people else (),
        ledger=facts,
    )


def _population(people: Population) -> schema.PopulationFacts:
    prose, relation, membership = words.prose(), people.relation.value, people.membership.value
    return _filled(
        schema.PopulationFacts,
        people,
        unit=people.called(),
        neighbouring=relation,
        neighbouring_in_words=words.about(prose["relations"][relation], people),
        membership=membership,
        membership_in_words=prose["memberships"][membership] if people.dimensions else "",
        dimensions={name: len(values) for name, values in people.dimensions},
        fixed=dict(people.fixed),
    )


def standing(state: State, counted: Counted) -> schema.Standing:
    """Return a limit rule in one scope, split by each dimension. A limit that only divides is
    not split: it guarantees nothing about groups.
    """
    row, window = line(state, counted), counted.epoch.window
    total = _place(row.total, Total(**row.lifetime))
    parts = counted.rule.divides or counted.rule.subjects
    axes = () if parts else range(len(state.people().shape))
    return _filled(
        schema.Standing,
        row,
        divides=counted.rule.divides,
        formula=words.formula(row.gate)[0],
        window=window.words if window else "",
        period=row.period or None,
        unlocked=row.unlocked or None,
        status=total.status,
        total=total,
        meaning=_meaning(counted.rule.most, total, state.people().called(counted.rule.unit)),
        splits=tuple(_split(state, counted, axis) for axis in axes),
        ladder=tuple(
            schema.RungFacts(**rung, name=words.formula(rung["gate"])[0]) for rung in row.ladder
        ),
    )


def _filled(kind: type[Facts], source: object, **more: Any) -> Facts:
    """Return a ``kind`` with the fields ``more``, and all others as ``source`` has them."""
    names = [name for name in kind.__struct_fields__ if name not in more]
    return kind(**{name: getattr(source, name) for name in names}, **more)


def _split(state: State, counted: Counted, axis: int) -> schema.Split[schema.Place]:
    dimension, _ = state.people().dimensions[axis]
    ever = lifetime_sums(state, counted.key.dataset, axis, counted.key.unit)
    places = [_place(*row) for row in zip(balances(state, counted, axis), ever, strict=True)]
    places.sort(key=lambda one: -(schema.as_number(one.spent) + schema.as_number(one.reserved)))
    return _listed(dimension, places)


def _listed(dimension: str, groups: list[schema.Group]) -> schema.Split[schema.Group]:
    listed = tuple(groups[:MOST_GROUPS])
    return schema.Split(dimension, len(groups), len(groups) - len(listed), listed)


def _place(balance: Balance, ever: Total) -> schema.Place:
    return _filled(schema.Place, balance, lifetime_epsilon=ever.epsilon, lifetime_delta=ever.delta)


def _meaning(most: Larger, total: schema.Place, unit: str) -> schema.Meaning:
    promised, both = words.meaning(f"{most.epsilon:f}", f"{most.delta:f}", unit), ""
    spent = words.meaning(total.spent, total.spent_delta, unit)
    if total.status == "over":  # only the plain sum is left
        spent = words.meaning(total.sum_of_epsilons, total.own_delta, unit)
    elif total.reserved != "0" or total.held_delta != total.spent_delta:
        both = words.meaning(total.together, total.held_delta, unit)
    return schema.Meaning(promised, spent, both)


def lifetimes(state: State) -> tuple[schema.Lifetime, ...]:
    """Return the lifetime total of each dataset, then of all datasets together."""
    found = []
    for dataset in [*sorted(state.datasets), ALL]:
        [total] = lifetime_sums(state, dataset, None)
        said = words.meaning(*total, state.people().called())
        splits = []
        for axis, (dimension, values) in enumerate(state.people().dimensions):
            sums = lifetime_sums(state, dataset, axis)
            groups = [schema.LifetimeGroup(v, *one) for v, one in zip(values, sums, strict=True)]
            groups.sort(key=lambda group: -schema.as_number(group.epsilon))
            splits.append(_listed(dimension, groups))
        found.append(schema.Lifetime(dataset, *total, said, tuple(splits)))
    return tuple(found)


def _dataset(
    state: State,
    history: History,
    limits: tuple[schema.Standing, ...],
    name: str,
    elsewhere: Sequence[Use],
) -> schema.DatasetFacts:
    tightest = _tightest(state, limits, name)
    tallies, basis = history.tallies, basis_of(state, history, tightest)
    tables = {f"by_{heading}": tallies.usages(name, heading, basis) for heading in HEADINGS}
    return _filled(
        schema.DatasetFacts,
        state.datasets[name],
        also=tuple(sorted({*state.datasets[name].also, *map(str, elsewhere)})),
        labels=dict(state.datasets[name].labels),
        status=tightest.status if tightest else "no_limit",
        rule=tightest.rule if tightest else "",
        rule_scope=tightest.dataset if tightest else "",
        basis=schema.BasisFacts(
            basis.rule,
            str(basis.measure.currency),
            words.sums_of(basis.measure.currency),
            basis.starts_at,
        ),
        booked=tallies.total(name, basis),
        reservations=reservations(history, name, basis),
        counts={sort: history.counts[sort][name] for sort in SORTS},
        **tables,
    )


def basis_of(state: State, history: History, standing: schema.Standing | None) -> Basis:
    """Return what shares of a dataset's budget are shares of, under its tightest limit."""
    if standing is None or state.adopted is None:
        return Basis()
    epoch, rule = state.adopted.epochs[standing.rule], state.adopted.rule(standing.rule)
    assert rule is not None  # noqa: S101 for the type checker
    key = AccountKey(rule.id, epoch.number, standing.dataset, unit=rule.unit or "")
    return basis_under(state, history, Counted(rule, epoch, key))


def basis_under(state: State, history: History, counted: Counted) -> Basis:
    """Return what shares of a budget are shares of, under a limit."""
    rule, epoch, key = counted
    line, capped = Ruler(rule, epoch).decides(Columns.of(state.seen(key).used))
    currency = Currency.EPSILON if line is None else line.currency
    return Basis(history.counting.measure(rule.id, epoch, currency), line, capped, rule.id)


def _tightest(
    state: State, limits: tuple[schema.Standing, ...], dataset: str
) -> schema.Standing | None:
    """Return the limit on the dataset with the worst status, then the most used, a window last.

    A limit over all datasets counts only where the dataset has none of its own.
    """
    policy = state.adopted.policy.limits if state.adopted else ()
    there = state.datasets[dataset]
    covering = {r.id for r in policy if r.promises and r.scope.holds(there)}
    counted = [s for s in limits if s.rule in covering]
    own = [s for s in counted if s.dataset == dataset]
    shared = [s for s in counted if s.dataset == ALL]
    return max(own or shared, key=_gravity, default=None)


def _gravity(standing: schema.Standing) -> tuple[int, bool, bool, Decimal]:
    lifetime, blocks = not standing.window, standing.action == "block"
    return schema.STATUSES.index(standing.status), lifetime, blocks, -standing.left


def reservations(history: History, dataset: str, basis: Basis) -> schema.Reservations:
    """Return the open grants that are charged to a dataset, or to any (ALL), and what they add to
    the sum of ``basis``.
    """
    listed = tuple(
        schema.Reservation(
            grant=grant.id,
            client=at.client,
            subjects=words.groups_in_words(at.subjects),
            purpose=str(at.purpose),
            epsilon=grant.total.amount(Currency.EPSILON),
            adds=basis.adds({at.policy: grant.total}),
            opened=rfc3339(grant.opened),
            expires=rfc3339(grant.expires),
        )
        for grant, at, _ in history.held.soonest(dataset, MOST_RESERVATIONS)
    )
    booked, number = history.held.booked(dataset), history.held.number(dataset)
    total = sum(booked.values(), start=NOTHING).amount(Currency.EPSILON)
    first = listed[0].expires if listed else None
    return schema.Reservations(number, total, basis.adds(booked), first, listed)


def _policy(state: State, history: History) -> schema.PolicyFacts | None:
    if (adopted := state.adopted) is None:
        return None
    people, rules = state.people(), adopted.policy.rules
    return _filled(
        schema.PolicyFacts,
        adopted,
        name=adopted.policy.policy,
        rules=tuple(schema.RuleFacts(one.id, words.rule_in_words(one, people)) for one in rules),
        depletion=tuple(one.in_words() for one in bounds(adopted.policy)),
        relaxed=relaxed_in_words(adopted.policy),
        changes=history.policies_total,
        latest_changes=tuple(history.policies),
    )


def _formulas(state: State) -> tuple[schema.FormulaFacts, ...]:
    if state.adopted is None:
        return ()
    names = list(dict.fromkeys(rule.filter.name for rule in state.adopted.policy.limits))
    if names != [BASIC.name]:  # the ladder shows all filters
        names = list(FILTERS)
    return tuple(schema.FormulaFacts(name, *words.formula(name)) for name in names)
