"""The cells that a charge counts in, by names, against the compiled subject group."""

from __future__ import annotations

import itertools
from typing import Any

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import hospital, make

from accountant.budget.commands import Envelope
from accountant.budget.population.packing import packed
from accountant.budget.population.selection import select
from accountant.reporting.contributors import _covers

DIMENSIONS = {"age": [f"{i}-{'x' * 190}" for i in range(30)], "sex": ["f", "m", "x"]}
PEOPLE = hospital("  - {id: a, limit: {epsilon: 1}}\n", DIMENSIONS).state.people()
ages = st.one_of(
    st.lists(st.sampled_from(DIMENSIONS["age"]), min_size=1, max_size=30, unique=True),
    st.tuples(st.integers(0, 29), st.integers(0, 29)).map(
        lambda ends: dict(
            zip(("from", "to"), (DIMENSIONS["age"][i] for i in sorted(ends)), strict=True)
        )
    ),
)
sexes = st.lists(st.sampled_from(DIMENSIONS["sex"]), min_size=1, unique=True)
terms = st.fixed_dictionaries({}, optional={"age": ages, "sex": sexes})


@settings(max_examples=examples(60), deadline=None)
@given(st.one_of(st.none(), terms, st.lists(terms, min_size=1, max_size=3)))
def test_a_charge_counts_in_the_cells_of_its_group(subjects: Any) -> None:
    """Lists, ranges, long lists as positions, and dimensions that a term does not name."""
    asked = {"dataset": "d", "mechanisms": [{"kind": "non_private"}], "subjects": subjects}
    command = packed(PEOPLE, make("ask_grant", **asked))
    selection = select(PEOPLE, command.subjects)
    stored = Envelope("pipe", command).document.get("subjects")
    order = {name: {v: i for i, v in enumerate(values)} for name, values in DIMENSIONS.items()}
    for cell in itertools.product(range(30), range(3)):
        chosen = selection.everyone or any(
            all(at in side for at, side in zip(cell, box, strict=True)) for box in selection.boxes
        )
        assert _covers(order, stored, PEOPLE.describe(cell)) == chosen
