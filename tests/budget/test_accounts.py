"""Accounts against a naive model: a dictionary from cell to a list of what was booked there."""

# ruff: noqa: S311

from __future__ import annotations

import random
import time
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import cells_of

from accountant.budget.accounts import Account, Meter, charge_from, room, vector
from accountant.budget.errors import Invalid
from accountant.budget.population import Membership, Population
from accountant.budget.selection import EVERYONE, Selection, select
from accountant.privacy.gates import Capacity
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import LARGEST, NOTHING, Charge, Currency

DIMENSIONS = (("age", ("17", "22", "27", "32")), ("sex", ("f", "m", "x")))
PEOPLE = Population("p", "person", Relation.REPLACE_ONE, Membership.PUBLIC, DIMENSIONS)
CELLS = list(product(range(4), range(3)))

Cell = tuple[int, ...]


@st.composite
def terms(draw: Any) -> dict[str, Any]:
    """One selection term: values or ranges of some dimensions."""
    term: dict[str, Any] = {}
    for name, values in DIMENSIONS:
        kind = draw(st.sampled_from(["all", "values", "range"]))
        if kind == "values":
            term[name] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
        elif kind == "range":
            first, last = sorted(draw(st.tuples(*[st.integers(0, len(values) - 1)] * 2)))
            term[name] = {"from": values[first], "to": values[last]}
    return term


subjects = st.none() | terms() | st.lists(terms(), min_size=1, max_size=5)
finite = st.tuples(*[st.integers(0, 10**12)] * 3)
charges = st.builds(Charge, finite, st.tuples(*[st.integers(0, 1)] * 3))


def naive(asked: Any) -> set[Cell]:
    """The cells of a selection, straight from its meaning."""
    if asked is None:
        return set(CELLS)
    wanted = set()
    for term in asked if isinstance(asked, list) else [asked]:
        sides = []
        for name, values in DIMENSIONS:
            choice = term.get(name)
            if choice is None:
                sides.append(set(range(len(values))))
            elif isinstance(choice, dict):
                first, last = values.index(choice["from"]), values.index(choice["to"])
                sides.append(set(range(first, last + 1)))
            else:
                sides.append({values.index(v) for v in choice})
        wanted |= {cell for cell in CELLS if all(i in s for i, s in zip(cell, sides, strict=True))}
    return wanted


def compiled(asked: Any) -> Selection:
    """The product's compilation of the same selection."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    from accountant.budget.selection import Subjects  # noqa: PLC0415

    return select(PEOPLE, TypeAdapter(Subjects | None).validate_python(asked))


@given(subjects)
def test_a_selection_covers_exactly_its_cells_once(asked: Any) -> None:
    """However the terms of a union overlap, every selected cell is in exactly one box."""
    selection = compiled(asked)
    wanted = naive(asked)
    assert selection.cells(PEOPLE) == len(wanted)
    if not selection.everyone:
        covered = [cell for box in selection.boxes for cell in product(*box)]
        assert len(covered) == len(set(covered))
        assert set(covered) == wanted


@given(st.lists(st.tuples(subjects, charges), max_size=8), subjects)
def test_sums_are_those_of_a_dictionary(booked: list[tuple[Any, Charge]], asked: Any) -> None:
    """Cell by cell and currency by currency, a meter holds the sum of what was booked there."""
    meter = Meter(PEOPLE.shape)
    model = dict.fromkeys(CELLS, NOTHING)
    for where, charge in booked:
        meter.add(compiled(where), vector(charge))
        for cell in naive(where):
            model[cell] = model[cell] + charge
    assert cells_of(meter) == [model[c].finite + model[c].infinite for c in CELLS]
    inside = [model[cell] for cell in naive(asked)]
    columns = np.concatenate(meter.parts(compiled(asked)), axis=1).max(axis=1)
    largest = charge_from(columns)
    for currency in Currency:
        assert largest[currency] == max(charge[currency] for charge in inside)
        assert largest.is_infinite(currency) == any(c.is_infinite(currency) for c in inside)


@given(
    st.lists(st.tuples(subjects, charges), max_size=8).flatmap(
        lambda items: st.tuples(st.just(items), st.permutations(items))
    )
)
def test_order_never_matters(both: tuple[list[tuple[Any, Charge]], ...]) -> None:
    """The same charges in another order give the same account, to the last unit."""
    accounts = []
    for booked in both:
        account = Account.empty(PEOPLE.shape)
        for where, charge in booked:
            account.book(compiled(where), charge, reserve=False)
        accounts.append((cells_of(account.used), account.bound))
    assert accounts[0] == accounts[1]


@given(
    st.lists(st.tuples(subjects, charges), max_size=4),
    subjects,
    charges,
    st.tuples(*[st.integers(0, 100)] * 3),
)
def test_giving_back_is_exact(
    before: list[tuple[Any, Charge]], where: Any, charge: Charge, parts: tuple[int, ...]
) -> None:
    """A release leaves nothing of a reservation; a commit leaves exactly what was committed."""
    account = Account.empty(PEOPLE.shape)
    for other, amount in before:
        account.book(compiled(other), amount, reserve=False)
    used, reserved = cells_of(account.used), cells_of(account.reserved)
    booked = account.book(compiled(where), charge, reserve=True)
    account.settle(compiled(where), booked, NOTHING)
    assert (cells_of(account.used), cells_of(account.reserved)) == (used, reserved)
    booked = account.book(compiled(where), charge, reserve=True)
    final = Charge(
        tuple(a * part // 100 for a, part in zip(charge.finite, parts, strict=True)),
        charge.infinite,
    )
    account.settle(compiled(where), booked, final)
    assert cells_of(account.reserved) == reserved
    at = naive(where)
    expected = [
        tuple(np.array(sums) + vector(final)) if cell in at else sums
        for cell, sums in zip(CELLS, used, strict=True)
    ]
    assert cells_of(account.used) == expected


amounts_near_the_end = st.integers(0, 4).map(lambda n: LARGEST * n // 4) | st.integers(0, LARGEST)


@given(
    st.lists(
        st.tuples(amounts_near_the_end, st.sampled_from(["keep", "release", "part"])), max_size=12
    )
)
def test_nothing_ever_wraps(steps: list[tuple[int, str]]) -> None:
    """Past 2**62 units a charge is infinite; no sum is negative, none shrinks by being added to,
    and no release or part commit changes that.
    """
    account = Account.empty(())
    for amount, what in steps:
        before = charge_from(np.array(cells_of(account.used)[0]))
        charge = Charge((amount, 1, amount))
        booked = account.book(EVERYONE, charge, reserve=True)
        held = charge_from(np.array(cells_of(account.used)[0]))
        for currency in Currency:
            infinite = held.infinite[list(Currency).index(currency)]
            more = infinite > before.infinite[list(Currency).index(currency)]
            assert more or held[currency] == before[currency] + charge[currency]
        if what == "keep":
            account.settle(EVERYONE, booked, charge)
        else:
            part = NOTHING if what == "release" else Charge((amount // 2, 1, amount // 2))
            account.settle(EVERYONE, booked, part)
        [sums] = cells_of(account.used)
        assert all(0 <= s <= LARGEST for s in sums)
        assert cells_of(account.reserved) == [(0,) * 6]
        after = charge_from(np.array(sums))
        if what == "release":
            assert after == before
        else:
            for currency in Currency:
                assert after.is_infinite(currency) or after[currency] >= before[currency]


def test_an_infinity_that_was_not_asked_for_is_given_back() -> None:
    """Saturation is counted beside the sum, so releasing the charge that saturated reopens it."""
    account = Account.empty(())
    account.book(EVERYONE, Charge((LARGEST, 0, 0)), reserve=False)
    booked = account.book(EVERYONE, Charge((1, 0, 0)), reserve=True)
    assert booked == Charge((0, 0, 0), (1, 0, 0))
    account.settle(EVERYONE, booked, NOTHING)
    assert cells_of(account.used) == [(LARGEST, 0, 0, 0, 0, 0)]


@given(
    st.lists(st.tuples(subjects, charges), max_size=6),
    st.sampled_from([0, 1]),
    st.integers(1, 3),
    st.booleans(),
)
def test_new_cells_inherit_the_largest_sum(
    booked: list[tuple[Any, Charge]], axis: int, by: int, inherit: bool
) -> None:
    """New values start with the most that the cells beside them have lost, unless their members
    are attested to be new: then with what was charged to everyone.
    """
    account = Account.empty(PEOPLE.shape)
    everyone = NOTHING
    model = dict.fromkeys(CELLS, NOTHING)
    for where, charge in booked:
        account.book(compiled(where), charge, reserve=True)
        if compiled(where).everyone:
            everyone = everyone + charge
        for cell in naive(where):
            model[cell] = model[cell] + charge
    account.extend(axis, by, inherit)
    assert account.used.shape == account.reserved.shape
    sums = np.asarray(account.used.cells())
    reserved = np.asarray(account.reserved.cells())
    for cell in product(*map(range, account.used.shape)):
        if cell in model:
            expected = vector(model[cell])
        elif inherit:
            beside = [
                vector(model[c]) for c in CELLS if all(c[i] == cell[i] for i in (0, 1) if i != axis)
            ]
            expected = np.maximum.reduce(beside)
        else:
            expected = vector(everyone)
        assert (sums[(slice(None), *cell)] == expected).all()
        assert (reserved[(slice(None), *cell)] <= sums[(slice(None), *cell)]).all()


@given(charges, charges, st.tuples(*[st.integers(0, 2 * 10**12)] * 3), st.booleans())
def test_admission_is_what_it_says(
    used: Charge, charge: Charge, most: tuple[int, int, int], second: bool
) -> None:
    """A cell takes a charge iff own deltas fit, and epsilon fits or the second currency fits;
    an infinite charge fits nowhere.
    """
    capacity = Capacity(
        most[0], most[1], most[2] if second else None, Currency.EPSILON_SQUARED if second else None
    )

    def fits(currency: Currency, limit: int) -> bool:
        total = used + charge
        return not total.is_infinite(currency) and total[currency] <= limit

    beside = second and fits(Currency.EPSILON_SQUARED, most[2])
    expected = fits(Currency.DELTA, most[1]) and (fits(Currency.EPSILON, most[0]) or beside)
    assert bool(room(capacity, vector(used).reshape(-1, 1), charge)[0]) == expected


def test_a_capacity_beyond_64_bits_still_compares() -> None:
    """Capacities of very large limits exceed 64 bits; what fits in an account fits in them."""
    capacity = Capacity(2**70, 0, 2**80, Currency.EPSILON_SQUARED)
    used = vector(Charge((LARGEST, 0, LARGEST))).reshape(-1, 1)
    assert room(capacity, used, Charge((1, 0, 1))).all()


REFUSED: list[tuple[str, Any, str]] = [
    ("a dimension that is not there", {"income": ["1"]}, "unknown-dimension"),
    ("a value that is not there", {"age": ["18"]}, "unknown-group"),
    ("a range that ends before it begins", {"age": {"from": "27", "to": "17"}}, "empty-range"),
    ("a range to nowhere", {"age": {"from": "17", "to": "99"}}, "unknown-group"),
]


@pytest.mark.parametrize(
    ("asked", "code"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_unknown_groups_are_refused(asked: Any, code: str) -> None:
    """A selection over what is not registered is refused, with what there is."""
    for subject in (asked, [asked], [{"sex": ["f"]}, asked]):
        with pytest.raises(Invalid) as refusal:
            compiled(subject)
        assert refusal.value.code == code


@given(st.lists(terms(), min_size=1, max_size=5), charges)
def test_charging_a_union_in_parts_never_costs_less(union: list[Any], charge: Charge) -> None:
    """One charge to a union costs each cell once; one charge a part costs overlaps again."""
    assume(len(union) > 1)
    whole, parts = Meter(PEOPLE.shape), Meter(PEOPLE.shape)
    whole.add(compiled(union), vector(charge))
    for term in union:
        parts.add(compiled(term), vector(charge))
    for one, many in zip(cells_of(whole), cells_of(parts), strict=True):
        assert all(a <= b for a, b in zip(one, many, strict=True))
        assert one in ((0,) * 6, charge.finite + charge.infinite)


def test_a_tangled_union_is_refused_quickly() -> None:
    """A union that falls into thousands of boxes is refused before it costs seconds of a lock."""
    dice = random.Random(1)
    values = tuple(str(v) for v in range(5))
    dimensions = tuple((f"d{i}", values) for i in range(8))
    people = Population("p", "x", Relation.REPLACE_ONE, Membership.PUBLIC, dimensions)
    union = [{f"d{i}": dice.sample(values, 3) for i in range(8)} for _ in range(100)]
    started = time.process_time()
    with pytest.raises(Invalid) as refusal:
        select(people, union)  # type: ignore[arg-type]
    assert refusal.value.code == "selection-too-complex"
    assert time.process_time() - started < 1


def test_a_long_list_of_values_is_compiled_quickly() -> None:
    """Naming thousands of values takes time in proportion to them, not to the dimension as well."""
    values = tuple(f"v{i}" for i in range(100_000))
    people = Population("p", "x", Relation.REPLACE_ONE, Membership.PUBLIC, (("id", values),))
    started = time.process_time()
    selection = select(people, {"id": list(values[50_000:])})
    assert selection.cells(people) == 50_000
    assert time.process_time() - started < 2
