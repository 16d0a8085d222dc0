"""Plain SQL over the exported tables gives the service's totals, to the unit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import examples
from fleets import Fleet, events_of, export, service_of, stored
from hypothesis import given, settings
from hypothesis import strategies as st
from support import NON_PRIVATE, SECOND, Book, declared, gaussian, laplace, make, sparse_vector

from accountant.budget.accounts.sums import Sums
from accountant.budget.decide import SYSTEM
from accountant.budget.facts import grant_in
from accountant.budget.state import ALL, State, lifetime
from accountant.privacy.units import SURE, Charge, Currency
from accountant.reporting.statement import scopes
from bench.mixed import LEDGER, mixed

AGES = ["17", "22", "27"]
RULES = (
    "  - {id: a, limit: {epsilon: 90, delta: 0.1}}\n"
    "  - {id: person, across: datasets, limit: {epsilon: 90}, action: flag}\n"
    "  - {id: each, per: client, limit: {epsilon: 90, delta: 1e-3}, gate: zcdp}\n"
    "  - {id: why, per: purpose, limit: {epsilon: 90, delta: 1e-3}, action: flag}\n"
)
OTHER = (
    "  - {id: a, limit: {epsilon: 95, delta: 0.1}}\n"
    "  - {id: new, limit: {epsilon: 99, delta: 0.01}, gate: renyi}\n"
)


def opened(name: str, dimensions: dict[str, list[str]] | None = None) -> Book:
    """A ledger with two datasets and three rules."""
    book = Book(name)
    book.register({"age": list(AGES), "sex": ["f", "m"]} if dimensions is None else dimensions)
    for dataset in "de":
        book.dataset(dataset)
    book.policy(RULES)
    return book


def more_ages(book: Book, *, attested: bool) -> None:
    """Appends an age."""
    known = dict(book.state.people().dimensions)["age"]
    dimensions = {"age": [*known, f"{len(known)} more"], "sex": ["f", "m"]}
    book.register(dimensions, **({"attested_new": True} if attested else {}))


def lift(book: Book, dataset: str, least: str, **infinite: int) -> None:
    """Carries over that nobody has less than ``least`` units."""
    used = {"epsilon": least, "delta": "7"} | ({"infinite": infinite} if infinite else {})
    account = {"rule": "", "epoch": 0, "dataset": dataset, "client": "", "used": used}
    own = {"rule": "a", "epoch": book.state.last_epoch["a"], "dataset": "d", "client": ""}
    book.do("carry_over", "admin", accounts=[account, own | {"used": used}])


def revalue(book: Book, subjects: Any) -> None:
    """Books that an earlier event should have cost more."""
    sequence = book.record(laplace("0.5"), subjects=subjects).sequence
    paid = Charge.from_json({"epsilon": "250000000", "delta": "0"})
    command = make(
        "revalue",
        event=sequence,
        by="pipe",
        dataset="d",
        subjects=subjects,
        mechanisms=[laplace("0.5")],
        booked=paid.to_json(),
        reason="it was too little",
    )
    book.ask(command, "officer")


def everything() -> Book:
    """A ledger with every way in which a sum may change."""
    book = opened("everything")
    young, women = {"age": {"from": "17", "to": "22"}}, {"sex": ["f"]}
    book.record(laplace("0.1"))
    book.record(laplace("0.2"), subjects=[young, women], dataset="e")
    book.record(laplace("0.3"), subjects={"age": ["17", "27"], "sex": ["m"]})
    part = grant_in(book.grant(laplace("0.01", count=5), subjects=young))
    book.do("commit_grant", grant=part, mechanisms=[laplace("0.01", count=2)])
    released = grant_in(book.grant(declared("0.2", "0.00001"), by="one", subjects=women))
    book.do("release_grant", "one", grant=released, reason="  ")
    book.grant(gaussian("0.2", "0.00001"), subjects=young, ttl_seconds=1)
    book.do("open_sparse_vector", dataset="d", subjects=women, mechanism=sparse_vector())
    book.now += 2 * SECOND
    late = next(name for name, grant in book.state.open.items() if grant.due(book.now))
    book.do("expire_grant", SYSTEM, grant=late)
    more_ages(book, attested=False)
    more_ages(book, attested=True)
    session = next(iter(book.state.open))
    book.do("count_answers", grant=session, positives=2, negatives=3)
    book.do("close_sparse_vector", grant=session)
    book.grant(laplace("0.4"), subjects=women)
    book.policy(OTHER, confirmed_by="officer", closes=True)
    book.grant(laplace("0.05"), dataset="e")
    book.record(gaussian("0.1"), subjects=women)
    lift(book, "d", "500000000")
    more_ages(book, attested=False)
    book.do("recover", "admin", reason="  ", lost=[])
    book.record(laplace("0.7"), subjects={"age": ["22"]})
    book.grant(laplace("0.11"), dataset="e", subjects=women)
    lift(book, ALL, "450000000", epsilon=2)
    revalue(book, women)
    book.record(NON_PRIVATE, dataset="e", subjects=young)
    return book


def joins() -> Book:
    """A ledger of requests on several datasets, and on one that was made from another."""
    book = opened("joins")
    derived = {"id": "g", "namespace": "n", "name": "g", "parents": ["d"]}
    book.do("register_dataset", "admin", **derived)
    held = book.grant(laplace("0.1", 2), dataset=["e", "g"], subjects={"sex": ["f"]})
    book.record(laplace("0.3"), dataset="g")
    book.do("commit_grant", grant=grant_in(held), mechanisms=[laplace("0.1")])
    book.grant(gaussian("0.1", "0.0000001"), dataset=["d", "e"])
    return book


def plain() -> Book:
    """A ledger whose population has one cell."""
    book = opened("plain", {})
    book.record(laplace("0.25"))
    book.grant(gaussian("0.1", "0.0000001"))
    return book


@pytest.fixture(scope="module")
def fleet(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four ledgers in one folder: mixed, everything, joins, plain."""
    folder = tmp_path_factory.mktemp("fleet")
    shutil.copy(empty_database, folder / "a.db")
    events: dict[str, Any] = {
        book.name: events_of(book) for book in (everything(), joins(), plain())
    }
    events[LEDGER] = mixed(1_500)
    with stored(folder, f"sqlite:///{folder}/a.db", events) as service:
        yield export(service, folder / "fleet")


def test_every_cell_of_every_account_is_what_the_service_holds(fleet: Fleet) -> None:
    """Used and reserved, finite and infinite, in every currency, of lifetimes and of rules in all
    their epochs: SQL adds the charges up to what the fold holds.
    """
    held = fleet.by_service()
    assert {place[0] for place in held} == {"everything", "joins", "mixed", "plain"}
    assert any(sums[1] for sums in held.values())
    assert any(sums[2] for sums in held.values())
    assert fleet.by_sql() == held


def largest(state: State, dataset: str, axis: int | None = None) -> list[tuple[int, ...]]:
    """What the service has booked on a dataset: the largest sums of the cells with each value of a
    dimension, or of all cells.
    """
    account = state.account(lifetime(dataset))
    used = account.used
    held = state.reserved().get(lifetime(dataset), Sums(used.rows, used.shape))
    both = np.concatenate([used.stacked(), held.stacked()])
    parts = [both] if axis is None else np.moveaxis(both, axis + 1, 0)
    return [tuple(part.reshape(len(both), -1).max(axis=1).tolist()) for part in parts]


def by_currency(sums: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Used, infinite, reserved, infinite; without a currency that nothing is booked in."""
    found = {str(currency): sums[i::2] for i, currency in enumerate(SURE)}
    return {currency: units for currency, units in found.items() if any(units)}


def test_datasets_are_the_services_totals(fleet: Fleet) -> None:
    """``datasets.sql``: the largest sums of any cell, for each dataset and over all of them."""
    expected = {
        (ledger, dataset, currency): units
        for ledger, state in fleet.states.items()
        for dataset in [*state.datasets, ALL]
        for [sums] in [largest(state, dataset)]
        for currency, units in by_currency(sums).items()
    }
    assert len(expected) > 15
    found = {tuple(row[:3]): tuple(map(int, row[3:])) for row in fleet.rows("datasets.sql")}
    assert {place: units for place, units in found.items() if any(units)} == expected


def test_groups_are_the_services_totals(fleet: Fleet) -> None:
    """``groups.sql``: the same for each value of each dimension, whichever ledger has it."""
    expected = {
        (ledger, dataset, name, value, currency): units
        for ledger, state in fleet.states.items()
        for dataset in [*state.datasets, ALL]
        for axis, (name, values) in enumerate(state.people().dimensions)
        for value, sums in zip(values, largest(state, dataset, axis), strict=True)
        for currency, units in by_currency(sums).items()
    }
    assert len(expected) > 50
    found = {tuple(row[:5]): tuple(map(int, row[5:])) for row in fleet.rows("groups.sql")}
    assert {place: units for place, units in found.items() if any(units)} == expected


def test_the_worst_cell_is_the_services(fleet: Fleet) -> None:
    """``worst.sql``: the first of the cells with the largest sum, by its values."""
    rows = fleet.rows("worst.sql")
    assert len({tuple(row[:3]) for row in rows}) > 10
    named: dict[tuple[Any, ...], dict[str, str]] = {}
    for ledger, dataset, currency, cell, dimension, value, used, infinite in rows:
        state = fleet.states[ledger]
        account, i = state.account(lifetime(dataset)), [*map(str, SURE)].index(currency)
        columns = account.used.stacked().reshape(4, -1)
        worst = max(range(state.people().cells), key=lambda c: (columns[2 + i][c], columns[i][c]))
        sums = (int(columns[i][worst]), int(columns[2 + i][worst]))
        assert (cell, int(used), int(infinite)) == (worst, *sums)
        named.setdefault((ledger, cell), {})[dimension] = value
    for (ledger, cell), values in named.items():
        people = fleet.states[ledger].people()
        place = tuple(map(int, np.unravel_index(cell, people.shape)))
        assert people.describe(place) == values


def test_rules_in_force_are_the_services(fleet: Fleet) -> None:
    """``rules.sql``: each account of each rule in force has used what the service says, beside the
    capacity that the service compares it with.
    """
    found = {
        (*row[:3], *row[5:10]): (int(row[10]), int(row[11]))
        for row in fleet.rows("rules.sql")
        if row[11]
    }
    expected = {}
    for ledger, state in fleet.states.items():
        for counted in scopes(state):
            capacity, used = counted.epoch.capacity, state.account(counted.key).used.most()
            compared = {Currency.EPSILON: capacity.epsilon, Currency.DELTA: capacity.own_delta}
            compared |= dict(zip(capacity.currencies, capacity.along, strict=True))
            for currency, most in compared.items():
                if units := int(used[counted.epoch.axis.index(currency)]):
                    expected[ledger, *counted.key, str(currency)] = (most, units)
    assert len(expected) > 20
    assert found == expected


def test_a_sound_export_has_no_finding(fleet: Fleet) -> None:
    """``checks.sql`` has nothing to say, and has looked at every kind of charge."""
    assert fleet.rows("checks.sql") == []
    kinds = fleet.rows("SELECT DISTINCT type FROM event JOIN charge USING (ledger, sequence)")
    assert {kind for (kind,) in kinds} == {
        "charge.revalued.v1",
        "grant.committed.v1",
        "grant.expired.v1",
        "grant.released.v1",
        "grant.reserved.v1",
        "invocation.recorded.v1",
        "ledger.carried_over.v1",
        "ledger.recovered.v1",
        "policy.adopted.v1",
        "population.extended.v1",
        "sparse_vector.closed.v1",
    }


@pytest.mark.parametrize("dataset", ["d", ALL])
@pytest.mark.parametrize("end", ["commit", "part", "release", "expire"])
def test_the_end_of_a_grant_that_was_carried_over_has_no_finding(
    empty_database: Path, tmp_path: Path, dataset: str, end: str
) -> None:
    """A carry-over spends what is reserved in its accounts, so that the end of the grant charges
    and gives back nothing there; in the other accounts it still must.
    """
    book = opened("absorbed")
    grant = book.grant(laplace("0.5", count=6), subjects={"sex": ["f"]})
    lift(book, dataset, "1")
    if end == "part":
        some = [laplace("0.5", count=2)]
        book.do("commit_grant", grant=grant_in(grant), mechanisms=some)
    else:
        step(book, (end,))
    shutil.copy(empty_database, tmp_path / "a.db")
    with service_of(tmp_path, f"sqlite:///{tmp_path}/a.db", [book]) as service:
        fleet = export(service, tmp_path / "fleet")
    assert fleet.by_sql() == fleet.by_service()
    assert fleet.rows("checks.sql") == []
    last = book.state.last
    fleet.change("charge", "absorbed", f"SELECT * FROM t WHERE sequence <> {last}")
    found = {row[1] for row in fleet.rows("checks.sql")}
    assert found == ({last} if end in ("part", "release") else set())


LIFETIME = "rule = '' AND currency = 'epsilon' AND held = 'spent'"
FIRST = f"(SELECT MIN(sequence) FROM t WHERE {LIFETIME})"
TAMPERED = {
    "a unit less": (
        "charge",
        f"SELECT * REPLACE (units - (sequence = {FIRST} AND {LIFETIME})::BIGINT AS units) FROM t",
    ),
    "a unit less of a rule": (
        "charge",
        f"SELECT * REPLACE (units - (sequence = {FIRST} AND rule = 'a' AND currency = 'epsilon')"
        "::BIGINT AS units) FROM t",
    ),
    "a charge less": ("charge", f"SELECT * FROM t WHERE NOT (sequence = {FIRST} AND {LIFETIME})"),
    "a charge twice": (
        "charge",
        f"SELECT * FROM t UNION ALL SELECT * FROM t WHERE sequence = {FIRST} AND {LIFETIME}",
    ),
    "another dataset": (
        "charge",
        f"SELECT * REPLACE (CASE WHEN sequence = {FIRST} AND dataset = 'd' THEN 'e' "
        "ELSE dataset END AS dataset) FROM t",
    ),
    "an event less": ("event", "SELECT * FROM t WHERE sequence <> 9"),
    "another body": (
        "event",
        "SELECT * REPLACE (CASE WHEN sequence = 9 THEN (SELECT body FROM t WHERE sequence = 10) "
        "ELSE body END AS body) FROM t",
    ),
    "a smaller group": ("selection", "SELECT * FROM t WHERE selection <> 1"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_whatever_is_changed_shows(fleet: Fleet, tmp_path: Path, how: str) -> None:
    """A row that is changed, dropped or doubled makes a finding of ``checks.sql``; and where it is
    one of a charge or a group, the totals are not the service's any more.
    """
    table, changed = TAMPERED[how]
    forged = replace(fleet, folder=tmp_path / "forged")
    shutil.copytree(fleet.folder, forged.folder)
    forged.change(table, "everything", changed)
    assert forged.rows("checks.sql")
    assert (forged.by_sql() == fleet.by_service()) == (table == "event")


# -- random ledgers --------------------------------------------------------------------------

ages = st.lists(st.sampled_from(AGES), min_size=1, max_size=2, unique=True)
sexes = st.lists(st.sampled_from(["f", "m"]), min_size=1, max_size=1)
term = st.fixed_dictionaries({}, optional={"age": ages, "sex": sexes})
groups = st.none() | term | st.lists(term, min_size=1, max_size=3)
mechanisms = st.sampled_from(
    [laplace("0.01", 3), declared("0.02", "0.000001"), gaussian("0.1"), gaussian("0.1", "0.0001")]
)
private = mechanisms | st.sampled_from([NON_PRIVATE, laplace("4000000000")])
datasets = st.sampled_from(["d", "e"])
clients = st.sampled_from(["pipe", "other"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), datasets, clients, groups, mechanisms),
        st.tuples(st.just("record"), datasets, clients, groups, private),
        st.tuples(st.just("commit")),
        st.tuples(st.just("part")),
        st.tuples(st.just("release")),
        st.tuples(st.just("expire")),
        st.tuples(st.just("extend"), st.booleans()),
        st.tuples(st.just("adopt"), st.sampled_from([RULES, OTHER])),
        st.tuples(st.just("lift"), st.sampled_from(["d", "e", ALL]), st.integers(0, 2)),
        st.tuples(st.just("recover")),
        st.tuples(st.just("revalue"), groups),
    ),
    max_size=25,
)


def step(book: Book, what: tuple[Any, ...]) -> None:  # noqa: C901 (a case each)
    """Does one step, as far as it is admitted."""
    grant = next(iter(book.state.open.values()), None)
    match what:
        case ("grant", dataset, client, subjects, asked):
            book.grant(asked, dataset=dataset, by=client, subjects=subjects)
        case ("record", dataset, client, subjects, ran):
            book.record(ran, dataset=dataset, by=client, subjects=subjects)
        case ("commit",) if grant:
            book.do("commit_grant", grant.by, grant=grant.id)
        case ("part",) if grant:
            one = grant.document["mechanisms"][0] | {"count": 1}
            book.do("commit_grant", grant.by, grant=grant.id, mechanisms=[one])
        case ("release",) if grant and not grant.due(book.now):
            book.do("release_grant", grant.by, grant=grant.id, reason="  ")
        case ("expire",) if grant:
            book.now = max(book.now, grant.expires)
            book.do("expire_grant", SYSTEM, grant=grant.id)
        case ("extend", attested):
            more_ages(book, attested=attested)
        case ("adopt", rules):
            book.policy(rules, confirmed_by="officer", closes=True)
        case ("lift", dataset, infinite):
            lift(book, dataset, "70000000", delta=infinite)
        case ("recover",):
            book.do("recover", "admin", reason="  ", lost=[])
        case ("revalue", subjects):
            revalue(book, subjects)


@settings(max_examples=examples(25))
@given(steps=steps)
def test_any_ledger_adds_up(
    empty_database: Path, tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Whatever happens in a ledger, plain sums over its tables are what the service holds, and no
    check has a finding.
    """
    book = opened("random")
    for one in steps:
        step(book, one)
    folder = tmp_path_factory.mktemp("random")
    shutil.copy(empty_database, folder / "a.db")
    with service_of(folder, f"sqlite:///{folder}/a.db", [book]) as service:
        fleet = export(service, folder / "fleet")
        assert fleet.by_sql() == fleet.by_service()
        assert fleet.rows("checks.sql") == []
