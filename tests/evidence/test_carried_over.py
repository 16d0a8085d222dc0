"""What was spent by the events that a recovery has lost stays spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from effort import examples
from house import ROOMS, House, adopt, audit, backup, reasons, recovered, resident
from hypothesis import given, settings
from hypothesis import strategies as st
from support import ask, cells_of, confirming, gaussian, laplace

from accountant.budget.outcome import PROPOSED
from accountant.budget.state import lifetime

Standing = dict[tuple[str, str, str], tuple[int, int]]


def standing(house: House, pick: Callable[..., Any]) -> Standing:
    """What every rule in force, and every lifetime, has used of each dataset in each currency:
    finite and infinite part of the most (or least) charged cell.
    """
    found: Standing = {}
    state = house.service.state("fair")
    for dataset in state.datasets:
        keys = [(counted.rule.id, counted.key) for counted in state.limits_on(dataset, "pipe")]
        for rule, key in [*keys, ("", lifetime(dataset))]:
            account = state.account(key)
            columns = list(zip(*cells_of(account.used), strict=True))
            for i, currency in enumerate(account.axis):
                infinite = columns[len(account.axis) + i]
                found[rule, dataset, str(currency)] = (pick(columns[i]), pick(infinite))
    return found


STEPS = st.one_of(
    st.tuples(st.just("grant"), st.integers(1, 900), st.sampled_from("de"), st.sampled_from("fm*")),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("infinite"), st.sampled_from("de")),
    st.tuples(st.just("sign")),
    st.tuples(st.just("backup")),
)


def step(house: House, what: tuple[Any, ...]) -> None:
    """Does one step of a random ledger."""
    match what:
        case ("grant", amount, dataset, cell):
            subjects = {} if cell == "*" else {"subjects": {"sex": [cell]}}
            body = ask(laplace(f"0.{amount:03d}"), **subjects) | {"dataset": dataset}
            house.do("ask_grant", **body)
        case ("settle", commit):
            state = house.service.state("fair")
            grants = sorted(state.open)
            if grants and commit:
                house.do("commit_grant", grant=grants[0])
            elif grants:
                house.do("release_grant", grant=grants[0], reason="  ")
        case ("infinite", dataset):
            house.do("record_invocations", **ask(gaussian("0.1")) | {"dataset": dataset})
        case ("sign",):
            house.sign()
        case ("backup",):
            backup(house)


@settings(max_examples=examples(15))
@given(steps=st.lists(STEPS, min_size=1, max_size=12))
def test_nothing_signed_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever happened, whenever it was signed and whatever older copy is put back: after the
    recovery no cell of any account has used less than the most charged one had when last signed.
    """
    made = resident(House(tmp_path_factory.mktemp("random") / "home"), {"sex": ["f", "m"]})
    made.do("register_dataset", "admin", id="e", namespace="n", name="e")
    backup(made)
    for one in steps:
        step(made, one)
    made.grant()
    made.sign()
    most = standing(made, max)
    again = made.put_back(made.home.parent / "backup.db")
    recovered(again)
    after = again.again()
    least = standing(after, min)
    assert least.keys() == most.keys()
    for place, (finite, infinite) in most.items():
        assert least[place][0] >= finite, place
        assert least[place][1] >= infinite, place
    assert reasons(audit(after.bundle())) == []
    for each in (made, again, after):
        each.close()


LOST = {
    "a tighter limit": lambda house: adopt(house, ROOMS.replace("100", "50")),
    "another rule": lambda house: adopt(house, ROOMS + "  - {id: b, limit: {epsilon: 9}}\n"),
    "another gate": lambda house: adopt(
        house, ROOMS.replace("}}", "}, gate: zcdp}"), confirmed_by="officer"
    ),
    "a renamed rule": lambda house: adopt(
        house, ROOMS.replace("id: a", "id: c"), confirmed_by="officer"
    ),
}


CASES = [(lost, again) for lost in LOST for again in (True, False)]


@pytest.mark.parametrize(("lost", "adopted_again"), CASES)
def test_a_lost_policy_forgets_nothing(
    house: Callable[..., House], lost: str, *, adopted_again: bool
) -> None:
    """If a policy was adopted in the events that are lost, what was used under it is used under the
    one that is in force again, and under the same one adopted once more.
    """
    made = resident(house())
    copy = backup(made)
    LOST[lost](made)
    made.commit(made.grant("7"))
    made.sign()
    again = made.put_back(copy)
    recovered(again)
    after = again.again()
    if adopted_again:
        LOST[lost](after)
    least = standing(after, min)
    for (rule, dataset, currency), (finite, infinite) in least.items():
        if currency == "epsilon":
            assert finite >= 7 * 10**9 or infinite, (rule, dataset)
    again.close()
    after.close()


def test_cells_that_are_lost_come_back_charged(house: Callable[..., House]) -> None:
    """If cells were added, and charged, in the events that are lost, they are not free when they
    are added again, even if their members were in no data before.
    """
    made = resident(house(), {"sex": ["f", "m"]})
    made.commit(made.grant("1", subjects={"sex": ["f"]}))
    copy = backup(made)

    def extend(mine: House) -> None:
        event = mine.do(
            "register_population",
            "admin",
            privacy_unit="person",
            neighbouring="replace_one",
            membership="public",
            dimensions={"sex": ["f", "m", "x"]},
            attested_new=True,
        )
        if event.type == PROPOSED:
            mine.ask(confirming(event), "officer")

    extend(made)
    made.commit(made.grant("7", subjects={"sex": ["x"]}))
    made.sign()
    again = made.put_back(copy)
    recovered(again)
    after = again.again()
    extend(after)
    assert min(cell[0] for cell in after.used()) >= 7 * 10**9
    again.close()
    after.close()
