"""Accounts against a naive model: a dictionary from cell to a list of what was booked there."""

# ruff: noqa: S311

from __future__ import annotations

import random
import time
from itertools import product
from math import prod
from operator import add, le
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import cells_of

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.peak import Reading
from accountant.budget.accounts.sums import Sums
from accountant.budget.errors import Invalid
from accountant.budget.population.population import Membership, Population
from accountant.budget.population.selection import EVERYONE, LASTING, Selection, select
from accountant.privacy.filters import Capacity
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import LARGEST, NOTHING, SURE, Charge, Currency

DIMENSIONS = (("age", ("17", "22", "27", "32")), ("sex", ("f", "m", "x")))
PEOPLE = Population("p", "person", Relation.REPLACE_ONE, Membership.PUBLIC, DIMENSIONS)
CELLS = list(product(range(4), range(3)))
SQUARED = Currency.EPSILON_SQUARED
AXIS = (*SURE, SQUARED, Currency.RHO, Currency.tau(22), Currency.MU_SQUARED)
"""What the account of a rule with a delta' keeps."""
N = len(AXIS)

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
finite = st.tuples(*[st.integers(0, 10**12)] * N)
charges = st.builds(Charge, st.just(AXIS), finite, st.tuples(*[st.integers(0, 1)] * N))


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


def column(charge: Charge) -> tuple[int, ...]:
    """Finite sums, then numbers of infinite charges."""
    return charge.finite + charge.infinite


def compiled(asked: Any) -> Selection:
    """The product's compilation of the same selection."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    from accountant.budget.population.selection import Subjects  # noqa: PLC0415

    return select(PEOPLE, TypeAdapter(Subjects | None).validate_python(asked))


def test_what_was_derived_of_a_selection_is_no_part_of_it() -> None:
    """Selections of the same cells are equal, and not unequal, though layouts and masks of one were
    made; everyone is another with the cells to come, and without.
    """
    women, same, men = (compiled({"sex": [sex]}) for sex in ("f", "f", "m"))
    assert women.layouts
    assert women.mask(PEOPLE.shape).any()
    assert women.bare() == women
    everyone = Selection(everyone=True)
    for one, other in ((women, same), (everyone, EVERYONE)):
        assert [one == other, one != other, len({one, other})] == [True, False, 1]
    for one, other in ((women, men), (EVERYONE, LASTING)):
        assert [one == other, one != other, len({one, other})] == [False, True, 2]


def count_of(selection: Selection, people: Population) -> int:
    """The number of cells that a selection has."""
    return people.cells if selection.everyone else sum(prod(map(len, b)) for b in selection.boxes)


@given(subjects)
def test_a_selection_covers_exactly_its_cells_once(asked: Any) -> None:
    """However the terms of a union overlap, every selected cell is in exactly one box."""
    selection = compiled(asked)
    wanted = naive(asked)
    assert count_of(selection, PEOPLE) == len(wanted)
    if not selection.everyone:
        covered = [cell for box in selection.boxes for cell in product(*box)]
        assert len(covered) == len(set(covered))
        assert set(covered) == wanted


@given(st.lists(st.tuples(subjects, charges), max_size=8), subjects)
def test_sums_are_those_of_a_dictionary(booked: list[tuple[Any, Charge]], asked: Any) -> None:
    """Cell by cell and currency by currency, there is the sum of what was booked there."""
    sums = Sums(N, PEOPLE.shape)
    model = dict.fromkeys(CELLS, NOTHING.on(AXIS))
    for where, charge in booked:
        sums.add(compiled(where), charge.finite, charge.infinite)
        for cell in naive(where):
            model[cell] = model[cell] + charge
    assert cells_of(sums) == [model[c].finite + model[c].infinite for c in CELLS]
    inside = [model[cell] for cell in naive(asked)]
    parts = sums.parts(compiled(asked))
    for row in range(N):
        most = max(charge.finite[row] for charge in inside)
        assert max(part.most(row) for part in parts) == most
        assert max(int(part.row(row).max()) for part in parts) == most
        infinite = max(int(part.infinite_row(row).max()) for part in parts)
        assert infinite == max(charge.infinite[row] for charge in inside)


@given(
    st.lists(st.tuples(subjects, charges), max_size=8).flatmap(
        lambda items: st.tuples(st.just(items), st.permutations(items))
    )
)
def test_order_never_matters(both: tuple[list[tuple[Any, Charge]], ...]) -> None:
    """The same charges in another order give the same account, to the last unit."""
    accounts = []
    for booked in both:
        account = Account.empty(PEOPLE.shape, AXIS)
        for where, charge in booked:
            account.book(compiled(where), charge, reserve=False, now=0)
        accounts.append((cells_of(account.used), account.bound))
    assert accounts[0] == accounts[1]


@given(
    st.lists(st.tuples(subjects, charges), max_size=4),
    subjects,
    charges,
    st.tuples(*[st.integers(0, 100)] * N),
)
def test_giving_back_is_exact(
    before: list[tuple[Any, Charge]], where: Any, charge: Charge, parts: tuple[int, ...]
) -> None:
    """A release leaves nothing of a reservation; a commit leaves exactly what was committed."""
    account = Account.empty(PEOPLE.shape, AXIS)
    for other, amount in before:
        account.book(compiled(other), amount, reserve=False, now=0)
    used, bound = cells_of(account.used), account.bound
    booked = account.book(compiled(where), charge, reserve=True, now=0)
    account.settle(compiled(where), booked, NOTHING, 0)
    assert (cells_of(account.used), account.bound) == (used, bound)
    assert account.held == [0] * N
    booked = account.book(compiled(where), charge, reserve=True, now=0)
    final = Charge(
        AXIS,
        tuple(a * part // 100 for a, part in zip(charge.finite, parts, strict=True)),
        charge.infinite,
    )
    account.settle(compiled(where), booked, final, 0)
    assert account.held == [0] * N
    at = naive(where)
    expected = [
        tuple(map(add, sums, final.finite + final.infinite)) if cell in at else sums
        for cell, sums in zip(CELLS, used, strict=True)
    ]
    assert cells_of(account.used) == expected


def only(account: Account) -> Charge:
    """What the only cell of an account has used."""
    [sums] = cells_of(account.used)
    n = len(account.axis)
    return Charge(account.axis, sums[:n], sums[n:])


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
    axis = (*SURE, SQUARED)
    account = Account.empty((), axis)
    for amount, what in steps:
        before = only(account)
        charge = Charge.over(axis, [amount, 1, amount])
        booked = account.book(EVERYONE, charge, reserve=True, now=0)
        held = only(account)
        for i, currency in enumerate(axis):
            more = held.infinite[i] > before.infinite[i]
            assert more or held[currency] == before[currency] + charge[currency]
        if what == "keep":
            account.settle(EVERYONE, booked, charge, 0)
        else:
            half = Charge.over(axis, [amount // 2, 1, amount // 2])
            part = NOTHING if what == "release" else half
            account.settle(EVERYONE, booked, part, 0)
        [sums] = cells_of(account.used)
        assert all(0 <= s <= LARGEST for s in sums)
        assert account.held == [0] * 3
        after = only(account)
        if what == "release":
            assert after == before
        else:
            for currency in axis:
                assert after.is_infinite(currency) or after[currency] >= before[currency]


def test_an_infinity_that_was_not_asked_for_is_given_back() -> None:
    """Saturation is counted beside the sum, so releasing the charge that saturated reopens it."""
    account = Account.empty(())
    account.book(EVERYONE, Charge.over(SURE, [LARGEST, 0]), reserve=False, now=0)
    booked = account.book(EVERYONE, Charge.over(SURE, [1, 0]), reserve=True, now=0)
    assert booked == Charge.over(SURE, [None, 0])
    account.settle(EVERYONE, booked, NOTHING, 0)
    assert cells_of(account.used) == [(LARGEST, 0, 0, 0)]


@given(charges, st.sets(st.sampled_from(AXIS)), st.booleans())
def test_what_a_charge_does_not_know_is_infinite(
    charge: Charge, known: set[Currency], give_back: bool
) -> None:
    """An account books a charge in its own currencies; one that the charge does not know counts as
    infinite, never as nothing, and what it knows beside them is left out. Giving back is exact.
    """
    asked = charge.on((*(c for c in AXIS if c in known), Currency.tau(3)))
    account = Account.empty(PEOPLE.shape, AXIS)
    booked = account.book(EVERYONE, asked, reserve=True, now=0)
    for currency in AXIS:
        expected = charge.units(currency) if currency in known else None
        assert booked.units(currency) == expected
    account.settle(EVERYONE, booked, NOTHING if give_back else asked, 0)
    assert set(cells_of(account.used)) == {
        (0,) * 2 * N if give_back else booked.finite + booked.infinite
    }


@given(charges)
def test_taking_a_charge_from_nothing_loses_nothing(charge: Charge) -> None:
    """Nothing has no currencies of its own: what is taken from it or added to it keeps its own."""
    assert NOTHING + charge == charge + NOTHING == charge - NOTHING == charge
    assert (NOTHING - charge) + charge == NOTHING.on(AXIS)


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
    account = Account.empty(PEOPLE.shape, AXIS)
    everyone = NOTHING.on(AXIS)
    model = dict.fromkeys(CELLS, everyone)
    for where, charge in booked:
        account.book(compiled(where), charge, reserve=True, now=0)
        if compiled(where).everyone:
            everyone = everyone + charge
        for cell in naive(where):
            model[cell] = model[cell] + charge
    account.extend(axis, by, inherit)
    sums = account.used.stacked()
    assert sums.shape[1:] == account.used.shape
    for cell in product(*map(range, account.used.shape)):
        if cell in model:
            expected = column(model[cell])
        elif inherit:
            beside = [
                column(model[c]) for c in CELLS if all(c[i] == cell[i] for i in (0, 1) if i != axis)
            ]
            expected = tuple(map(max, zip(*beside, strict=True)))
        else:
            expected = column(everyone)
        found = tuple(sums[(slice(None), *cell)].tolist())
        assert found == expected
        assert all(map(le, found[:N], account.bound))


@given(
    charges,
    charges,
    st.tuples(*[st.integers(0, 2 * 10**12)] * 3),
    st.lists(st.sampled_from(AXIS[2:]), max_size=2, unique=True),
)
def test_admission_is_what_it_says(
    used: Charge, charge: Charge, most: tuple[int, int, int], own: list[Currency]
) -> None:
    """A cell takes a charge iff own deltas fit, and epsilon fits or one of the gate's own
    currencies fits; an infinite charge fits nowhere. What fits on each cell of a group fits on the
    group.
    """
    capacity = Capacity(most[0], most[1], (most[2],) * len(own), tuple(own))

    def fits(currency: Currency, limit: int) -> bool:
        total = used + charge
        return not total.is_infinite(currency) and total[currency] <= limit

    beside = any(fits(currency, most[2]) for currency in own)
    expected = fits(Currency.DELTA, most[1]) and (fits(Currency.EPSILON, most[0]) or beside)
    account = Account.empty(PEOPLE.shape, AXIS)
    women = compiled({"sex": ["f"]})
    account.book(women, used, reserve=False, now=0)
    assert Reading(account, women).fits(charge, capacity) == expected
    one_more = compiled([{"sex": ["f"]}, {"sex": ["m"], "age": ["17"]}])
    alone = Reading(account, compiled({"sex": ["m"]})).fits(charge, capacity)
    assert Reading(account, one_more).fits(charge, capacity) == (expected and alone)


def test_a_capacity_beyond_64_bits_still_compares() -> None:
    """Capacities of very large limits exceed 64 bits; what fits in an account fits in them."""
    axis = (*SURE, SQUARED)
    capacity = Capacity(2**70, 0, (2**80,), (SQUARED,))
    for selection in (EVERYONE, compiled({"sex": ["f"]})):
        account = Account.empty(PEOPLE.shape, axis)
        most = Charge.over(axis, [LARGEST, 0, LARGEST])
        account.book(selection, most, reserve=False, now=0)
        assert Reading(account, selection).fits(Charge.over(axis, [1, 0, 1]), capacity)


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
    whole, parts = Sums(N, PEOPLE.shape), Sums(N, PEOPLE.shape)
    whole.add(compiled(union), charge.finite, charge.infinite)
    for term in union:
        parts.add(compiled(term), charge.finite, charge.infinite)
    for one, many in zip(cells_of(whole), cells_of(parts), strict=True):
        assert all(a <= b for a, b in zip(one, many, strict=True))
        assert one in ((0,) * 2 * N, charge.finite + charge.infinite)


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
    assert count_of(selection, people) == 50_000
    assert time.process_time() - started < 2
