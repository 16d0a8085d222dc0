"""Which requests to admit: never more than fits, never fewer than in the order of arrival."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support import Book, hospital, laplace, make, snapshot

from accountant.budget.commands import AskGrant
from accountant.budget.trials.planning import MOST_EXACT, Wish, choose, left_after, orders

LIMIT = "  - {id: a, limit: {epsilon: 1}}\n"


def wish(epsilon: str, weight: int = 1, dataset: str = "d", **more: Any) -> Wish:
    """A request of Laplace noise."""
    asked = make("ask_grant", dataset=dataset, mechanisms=[laplace(epsilon)], **more)
    assert isinstance(asked, AskGrant)
    return Wish("pipe", asked, weight)


def test_small_requests_come_before_a_large_one() -> None:
    """By arrival 0.9 leaves room for nothing; nine others are worth more."""
    book = hospital(LIMIT)
    wishes = [wish("0.9"), *(wish("0.1") for _ in range(10))]
    found = choose(book.state, wishes, book.now)
    assert (found.weight, found.best) == (10, True)
    assert 0 not in found.admitted
    assert left_after(book.state, wishes, found, book.now) == {"a": "0"}


def test_weights_say_what_matters() -> None:
    """The large request is worth eleven small ones."""
    book = hospital(LIMIT)
    wishes = [*(wish("0.1") for _ in range(10)), wish("0.9", 11)]
    found = choose(book.state, wishes, book.now)
    assert (found.weight, found.admitted[0]) == (12, 10)


def test_efficiency_looks_at_all_cells() -> None:
    """A request on everyone takes three blocks: three requests on a third each are worth more,
    though its share of any block is smaller, so that it comes first by dominant share.
    """
    book = hospital(LIMIT, {"wave": ["1", "2", "3"]})
    asked = [*(wish("0.9", subjects={"wave": [wave]}) for wave in "123"), wish("0.8")]
    found = orders(book.state, asked, book.now)
    assert found["dominant share"] == [3, 0, 1, 2]
    assert found["efficiency"] == [0, 1, 2, 3]
    assert choose(book.state, asked, book.now).weight == 3


def fits(book: Book, wishes: list[Wish], places: tuple[int, ...]) -> bool:
    """Whether the epsilons of a subset add up to at most 1 in each dataset."""
    sums: dict[str, Fraction] = {}
    for place in places:
        [one] = wishes[place].ask.mechanisms
        epsilon = Fraction(one.sensitivity) / Fraction(one.scale)  # type: ignore[attr-defined]
        name = str(wishes[place].ask.dataset)
        sums[name] = sums.get(name, Fraction(0)) + epsilon
    return all(each <= 1 for each in sums.values())


wishes_of = st.lists(
    st.builds(
        wish, st.sampled_from(["0.1", "0.25", "0.4", "0.55", "0.7", "1.2"]), st.integers(1, 9),
        st.sampled_from(["d", "e"]),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


@given(wishes_of)
def test_few_requests_are_chosen_as_well_as_can_be(wishes: list[Wish]) -> None:
    """Against all subsets, added up by fractions; and the state is what it was."""
    book = hospital(LIMIT)
    book.dataset("e")
    before = snapshot(book.state)
    found = choose(book.state, wishes, book.now)
    assert fits(book, wishes, found.admitted)
    best = max(
        sum(wishes[place].weight for place in places)
        for size in range(len(wishes) + 1)
        for places in combinations(range(len(wishes)), size)
        if fits(book, wishes, places)
    )
    assert (found.weight, found.best) == (best, True)
    assert snapshot(book.state) == before


@given(st.lists(st.integers(1, 30), min_size=MOST_EXACT + 1, max_size=40))
def test_many_requests_are_no_fewer_than_by_arrival(sizes: list[int]) -> None:
    """Of more requests than are searched the best of three orders is taken, and all of it fits."""
    book = hospital(LIMIT)
    wishes = [wish(f"0.{size:02}") for size in sizes]
    found = choose(book.state, wishes, book.now)
    assert sum(sizes[place] for place in found.admitted) <= 100
    used, arrived = 0, 0
    for size in sizes:
        if used + size <= 100:
            used, arrived = used + size, arrived + 1
    assert found.weight >= arrived
    by_size, count = 0, 0
    for size in sorted(sizes):
        by_size += size
        count += by_size <= 100
    assert found.weight == count  # of one account the smallest first are the most
