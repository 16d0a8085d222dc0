"""What a dataset is charged with when it becomes known that others were made from it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    SECOND,
    Book,
    audited,
    cells_of,
    gaussian,
    hospital,
    laplace,
    last_replay,
    make,
    proposed,
    snapshot,
)

from accountant.budget.ancestors import uncharged
from accountant.budget.apply import apply, follow
from accountant.budget.commands import Envelope
from accountant.budget.decide import decide
from accountant.budget.errors import Conflict, Problem
from accountant.budget.handlers import HANDLERS
from accountant.budget.outcome import CHARGING, REGISTERED
from accountant.budget.snapshot import dump, load
from accountant.budget.state import ALL, State, lifetime
from accountant.console.facts.sentences import sentence
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import Currency

RULES = """
  - {id: a, limit: {epsilon: 1, delta: 1e-6}}
  - {id: mine, per: client, limit: {epsilon: 9, delta: 1e-6}, action: flag}
  - {id: person, across: datasets, limit: {epsilon: 9, delta: 1e-6}, action: flag}
"""


def derive(book: Book, name: str, *parents: str, **more: Any) -> Any:
    """Registers a dataset that was made from others."""
    fields = {"id": name, "namespace": "n", "name": name, "parents": list(parents)} | more
    return book.do("register_dataset", "admin", **fields)


def agrees(book: Book) -> None:
    """Replay finds nothing, and a snapshot is the same state."""
    assert book.replayed().findings == []
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)


def epsilons(book: Book, *datasets: str, rule: str = "", client: str = "") -> list[int]:
    """Milli-epsilons used of each dataset, by default over its lifetime."""
    return [book.used(rule, name, client)[0][0] // 10**6 for name in datasets]


def test_a_budget_is_had_once_however_late_the_data_are_registered() -> None:
    """Who uses up a derived table, and then registers what it was made from, gets nothing more."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace(1), dataset="e")
    assert derive(book, "x").body["charged_with"] == {"x": ["e"]}
    assert book.grant(laplace("0.1"), dataset="x").type == "grant.refused.v1"
    assert epsilons(book, "e", "x", ALL) == [1000, 1000, 1000]
    assert epsilons(book, "e", "x", rule="mine", client="pipe") == [1000, 1000]
    assert epsilons(book, ALL, rule="person") == [1000]
    agrees(book)


def test_a_limit_goes_on_in_its_own_currencies() -> None:
    """Under a limit that counts both, the new ancestor has what the data made from it have, to the
    unit, in every currency: noise without an epsilon of its own closes nothing.
    """
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(gaussian("0.01", count=50), dataset="e", subjects={})
    derive(book, "x")
    for rule, client in (("a", ""), ("mine", "pipe"), ("", "")):
        assert book.used(rule, "x", client) == book.used(rule, "e", client)
    assert book.used_in(Currency.EPSILON, "a", "x") == [None]
    assert book.grant(gaussian("0.01"), dataset="x").type == "grant.reserved.v1"
    agrees(book)


def test_its_own_ancestors_are_charged_too() -> None:
    """What the late one was made from becomes known as an ancestor with it; what was one before has
    it already.
    """
    book = hospital(RULES)
    for name in ("g", "i"):
        book.dataset(name)
    derive(book, "e", "n/x", "i")
    book.record(laplace("0.3"), dataset="e")
    event = derive(book, "x", "g", "i")
    assert event.body["charged_with"] == {"g": ["e"], "x": ["e"]}
    assert epsilons(book, "e", "g", "i", "x") == [300, 300, 300, 300]
    agrees(book)


def test_what_was_made_from_another_one_counts_in_that() -> None:
    """Of two tables, of which one was made from the other, the latter holds what both have used; of
    two apart each counts. What was never used is not listed.
    """
    book = hospital(RULES)
    derive(book, "e", "n/x")
    derive(book, "f", "e", "n/x")
    derive(book, "h", "n/x")
    derive(book, "unused", "n/x")
    for name, epsilon in (("e", "0.1"), ("f", "0.2"), ("h", "0.4")):
        book.record(laplace(epsilon), dataset=name)
    event = derive(book, "x")
    assert event.body["made_into"] == ["e", "f", "h", "unused"]
    assert event.body["charged_with"] == {"x": ["e", "h"]}
    assert epsilons(book, "x") == [700]
    agrees(book)


def test_a_new_parent_of_data_that_were_used() -> None:
    """It is the same where a dataset is registered again, with a parent that it did not have."""
    book = hospital(RULES)
    for name in ("e", "f", "g"):
        book.dataset(name)
    derive(book, "g", "f")
    book.record(laplace("0.2"), dataset="e")
    book.record(laplace("0.3"), dataset="g")
    assert derive(book, "e", "g", "d").body["charged_with"] == {"d": ["e"], "f": ["e"], "g": ["e"]}
    assert epsilons(book, "d", "e", "f", "g", ALL) == [200, 200, 500, 500, 500]
    assert "charged_with" not in derive(book, "e", "g", "d", owner="clinic").body
    agrees(book)


def test_what_a_limit_did_not_count_comes_as_a_sum_of_epsilons() -> None:
    """A limit that does not name the derived data begins with what they have used in their life."""
    rules = "  - {id: a, datasets: x, gate: zcdp, limit: {epsilon: 1, delta: 1e-6}}\n"
    book = hospital(rules + "  - {id: part, datasets: x, per: client, limit: {epsilon: 1}}\n")
    derive(book, "e", "n/x")
    derive(book, "f", "n/x")
    book.record(laplace("0.3"), dataset="e")
    book.record(laplace("0.5"), dataset="f")
    derive(book, "x")
    assert epsilons(book, "x", rule="a") == [800]
    [rho] = book.used_in(Currency.RHO, "a", "x")
    assert book.state.adopted is not None
    epoch = book.state.adopted.epochs["a"]
    each = dict(epoch.per_epsilon())[Currency.RHO]
    assert each is not None
    assert rho == -(-800 * 10**6 * each // 1)
    assert book.grant(laplace("0.3"), dataset="x").type == "grant.refused.v1"
    assert not any(book.used("part", "x", "pipe")[0])  # which promises nothing of the data
    agrees(book)


def test_a_limit_that_would_close_for_good_is_named_first() -> None:
    """Noise without an epsilon has no plain sum: whoever registers says that a limit may close."""
    book = hospital("  - {id: a, datasets: x, limit: {epsilon: 1, delta: 1e-6}}\n")
    derive(book, "e", "n/x")
    book.record(gaussian("0.01"), dataset="e")
    stored = len(book.stored)
    with pytest.raises(Conflict, match="closes a") as refused:
        derive(book, "x")
    assert refused.value.code == "dataset-closes-limit"
    assert refused.value.numbers["closes"] == [{"rule": "a", "dataset": "x"}]
    assert len(book.stored) == stored
    derive(book, "x", closes=["a"])
    assert book.grant(laplace("0.001"), dataset="x").type == "grant.refused.v1"
    agrees(book)


def test_what_closes_is_asked_before_another_person_is() -> None:
    """A registration that takes two people is not proposed while it could not be confirmed."""
    book = hospital("  - {id: a, datasets: x, limit: {epsilon: 1, delta: 1e-6}}\n")
    book.dataset("x")
    derive(book, "g", "d")
    book.record(gaussian("0.01"), dataset="g")
    stored = len(book.stored)
    with pytest.raises(Conflict, match="closes a"):
        derive(book, "g", "x")
    assert len(book.stored) == stored
    derive(book, "g", "x", closes=["a"], confirmed_by="officer")
    assert book.state.datasets["g"].sources == ("x",)
    agrees(book)


def test_in_a_window_it_counts_as_spent_at_the_registration() -> None:
    """When the window has passed it is free again, in the ancestor as in what was made from it."""
    book = hospital("  - {id: a, window: 1d, limit: {epsilon: 1}}\n")
    derive(book, "e", "n/x")
    book.record(laplace("0.6"), dataset="e")
    book.now += 20 * 3_600 * SECOND
    derive(book, "x")
    assert book.grant(laplace("0.5"), dataset="x").type == "grant.refused.v1"
    book.now += 5 * 3_600 * SECOND
    assert book.grant(laplace("0.5"), dataset="x").type == "grant.refused.v1"
    book.now += 20 * 3_600 * SECOND
    assert book.grant(laplace("0.5"), dataset="x").type == "grant.reserved.v1"
    assert epsilons(book, "e", "x") == [600, 1100]
    agrees(book)


def test_open_grants_end_there_too() -> None:
    """What is given back comes back in the new ancestor as well; where the ancestor begins with a
    sure sum it does not, for a reservation bounds what it becomes.
    """
    book = hospital(RULES + "  - {id: b, datasets: x, limit: {epsilon: 9}}\n")
    derive(book, "e", "n/x")
    book.record(laplace("0.2"), dataset="e")
    opened = book.grant(laplace("0.1", 5), dataset="e")
    derive(book, "x")
    agrees(book)
    assert epsilons(book, "e", "x", ALL) == [700, 700, 700]
    book.do("commit_grant", grant=f"g{opened.sequence}", mechanisms=[laplace("0.1")])
    assert epsilons(book, "e", "x", ALL) == [300, 300, 300]
    assert epsilons(book, "x", rule="a") == [300]
    assert epsilons(book, "x", rule="b") == [700]
    assert not any(any(account.held) for account in book.state.accounts.values())
    agrees(book)


def test_in_a_window_an_open_grant_counts_from_when_it_ends() -> None:
    """What it spends after the registration has not passed when that has."""
    for names in ("x", "[ex]"):
        window = f"  - {{id: a, window: 2h, datasets: '{names}', limit: {{epsilon: 1}}}}\n"
        book = hospital(window + "  - {id: z, limit: {epsilon: 9}}\n")
        derive(book, "e", "n/x")
        opened = book.grant(laplace("0.6"), dataset="e", ttl_seconds=4 * 3_600)
        derive(book, "x")
        book.now += 3 * 3_600 * SECOND
        book.do("commit_grant", grant=f"g{opened.sequence}")
        book.now += 3_600 * SECOND
        assert book.grant(laplace("0.5"), dataset="x").type == "grant.refused.v1"
        book.now += 3_600 * SECOND
        assert book.grant(laplace("0.5"), dataset="x").type == "grant.reserved.v1"
        agrees(book)


def test_an_open_grant_reaches_new_cells_of_the_ancestor_too() -> None:
    """Members of new cells, who are attested to be in no data before, may be in what an open grant
    still runs on.
    """
    for subjects in ({}, {"sex": ["f"]}):
        book = hospital(RULES, {"sex": ["f", "m"], "town": ["1"]})
        derive(book, "e", "n/x")
        book.record(laplace("0.2"), dataset="e")
        book.grant(laplace("0.1"), dataset="e", subjects=subjects)
        derive(book, "x")
        book.register({"sex": ["f", "m"], "town": ["1", "2"]}, attested_new=True)
        both = 1 if subjects else 2
        for rule in ("a", ""):
            new = [cell[0] // 10**6 for cell in book.used(rule, "x")][1::2]
            assert new == [100, 100][:both] + [0] * (2 - both)
        agrees(book)


def test_every_unit_of_privacy_is_charged() -> None:
    """Limits for further units count it as they count the data made from it."""
    rules = "  - {id: a, limit: {epsilon: 2}}\n  - {id: u, unit: day, limit: {epsilon: 1}}\n"
    book = Book()
    book.register(units={"day": {"part_of": "person", "at_most": 3}})
    derive(book, "e", "n/x")
    book.policy(rules)
    book.record(laplace("0.5"), dataset="e")
    derive(book, "x")
    assert book.used("u", "x") == book.used("u", "e")
    assert any(book.used("u", "x")[0])
    key = lifetime("x", "day")
    assert book.state.accounts[key].used == book.state.accounts[lifetime("e", "day")].used
    agrees(book)


def test_a_total_over_datasets_counts_once_what_it_has() -> None:
    """What was in the scope of a limit across datasets is in its total. What was out of it comes in
    with an ancestor that is in it.
    """
    rules = "  - {id: a, across: datasets, owners: [clinic], limit: {epsilon: 9}}\n"
    book = hospital(rules)
    derive(book, "e", "n/x", owner="clinic")
    derive(book, "f", "n/x")
    book.record(laplace("0.3"), dataset="e")
    book.record(laplace("0.4"), dataset="f")
    assert epsilons(book, ALL, "f", rule="a") == [300, 400]
    derive(book, "x", owner="clinic")
    assert epsilons(book, ALL, "f", "x", rule="a") == [700, 400, 0]
    derive(book, "g", "n/y")
    book.record(laplace("0.1"), dataset="g")
    derive(book, "y")
    assert epsilons(book, ALL, "g", "y", rule="a") == [700, 100, 100]
    agrees(book)


def test_a_correction_of_an_earlier_charge_reaches_the_ancestor() -> None:
    """A charge that was booked too low is raised in all that is charged with it by now."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    recorded = book.record(laplace("0.1"), dataset="e")
    derive(book, "x")
    state = load(book.name, b"".join(dump(book.state)))
    corrected(state, recorded.sequence)
    assert [state.account(lifetime(name)).used.everyone[0] for name in ("e", "x", ALL)] == [
        300 * 10**6
    ] * 3


def corrected(state: State, sequence: int, dataset: Any = "e") -> None:
    """Folds in the event of a correction by 0.2."""
    command = {"type": "revalue", "event": sequence, "by": "pipe", "dataset": dataset, "booked": {}}
    body = {"command": command, "more": {"delta": "0", "epsilon": str(200 * 10**6)}}
    event = Event(state.ledger, state.sequence, "charge.revalued.v1", state.time, "o", body)
    HANDLERS[event.type](state, event)


def test_a_parent_that_is_not_registered_yet_is_not_left_out_by_one_person() -> None:
    """Once the data were used, to forget what they were made from would free its whole budget."""
    book = hospital(RULES)
    derive(book, "e", "n/x", "n/z")
    derive(book, "e", "n/x")  # nothing was used, and one person may be mistaken
    book.record(laplace(1), dataset="e")
    derive(book, "e", "N/X", owner="clinic")  # another spelling leaves nothing out
    proposed(derive(book, "e"), "would not count on N/X, which it was made from, once that is")
    assert derive(book, "x").body["charged_with"] == {"x": ["e"]}
    agrees(book)
    two = hospital(RULES)
    derive(two, "e", "n/x")
    two.record(laplace(1), dataset="e")
    derive(two, "e", confirmed_by="officer")
    assert "charged_with" not in derive(two, "x").body
    agrees(two)
    assert audited(two).findings == []


def test_who_left_a_parent_out_before_needed_nobody() -> None:
    """A version before 0.3 asked for no second person: its events are decided as they were."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.1"), dataset="e")
    command = make("register_dataset", id="e", namespace="n", name="e")
    [outcome] = decide(book.state, Envelope("admin", command, forgets=False), book.now)
    apply(book.state, outcome)
    book.stored.append(outcome.entry.body)
    agrees(book)


# -- events of before ------------------------------------------------------------------------


def older(book: Book) -> list[bytes]:
    """The ledger as a version before 0.3 would have written it."""
    stored = []
    for body in book.stored:
        event = orjson.loads(body)
        if event["type"] == CHARGING:
            event["type"] = REGISTERED
            del event["charged_with"]
            event.pop("orders", None)
        stored.append(orjson.dumps(event, option=orjson.OPT_SORT_KEYS))
    return stored


def test_an_event_of_before_folds_as_it_did() -> None:
    """Without the field nothing is charged, replay agrees, and the dataset says what it lacks."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.3"), dataset="e")
    derive(book, "x")
    found = last_replay(book.name, older(book))
    assert found.findings == []
    state = found.state
    assert state.account(lifetime("x")).used.everyone == [0, 0]
    assert state.datasets["x"].uncharged == ("e",)
    assert book.state.datasets["x"].uncharged == ()
    assert load(book.name, b"".join(dump(state))).datasets == state.datasets
    corrected(state, 5)  # as it was then: on what was charged
    assert state.account(lifetime("x")).used.everyone == [0, 0]


def test_what_an_old_event_lacks_can_be_charged_later() -> None:
    """To take the parent away, by two people, and to state it again charges all that was used."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.3"), dataset="e")
    derive(book, "x")
    state = last_replay(book.name, older(book)).state
    book.state, book.stored = state, older(book)
    derive(book, "e", confirmed_by="officer")
    assert derive(book, "e", "x").body["charged_with"] == {"x": ["e"]}
    assert epsilons(book, "e", "x") == [300, 300]
    assert book.state.datasets["x"].uncharged == ()
    agrees(book)


OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    (REGISTERED, {"charged_with": {"x": ["e"]}}),
    (REGISTERED, {"charged_with": {}}),
    (REGISTERED, {"orders": {}}),
    (CHARGING, {}),
    (CHARGING, {"charged_with": {}}),
]


@pytest.mark.parametrize(("kind", "told"), OTHERWISE)
def test_the_type_says_whether_a_registration_charges(kind: str, told: dict[str, Any]) -> None:
    """No state follows an event that charges and is of the type that readers of before 0.3 know, or
    that is of the other type and charges nothing.
    """
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.3"), dataset="e")
    state = load(book.name, b"".join(dump(book.state)))
    event = derive(book, "x")
    assert event.type == CHARGING
    follow(state, event.to_bytes())
    assert snapshot(state) == snapshot(book.state)
    quiet = derive(book, "y")
    assert quiet.type == REGISTERED
    with pytest.raises(ValueError, match=f"event {quiet.sequence} is a {kind}"):
        follow(state, replace(quiet, type=kind, body=quiet.body | told).to_bytes())


@pytest.mark.parametrize("told", [{}, {"x": []}, {"x": ["d"]}, {"d": ["e"]}, {"x": ["e"], "d": []}])
def test_replay_holds_a_registration_to_what_is_due(told: Any) -> None:
    """An event that charges other datasets, or with other data, is a finding."""
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.3"), dataset="e")
    derive(book, "x")
    event = orjson.loads(book.stored[-1])
    event["charged_with"] = told
    forged = [*book.stored[:-1], orjson.dumps(event, option=orjson.OPT_SORT_KEYS)]
    assert last_replay(book.name, forged).findings


# -- a law -----------------------------------------------------------------------------------

MADE = {"e": ["n/x"], "f": ["e"], "h": ["n/x", "d"], "k": ["f", "h"]}
"""Data that were made from ``x``, directly or not."""
LAW = """
  - {id: a, limit: {epsilon: 90, delta: 1e-3}, gate: zcdp, action: flag}
  - {id: b, limit: {epsilon: 90, delta: 1e-3}, datasets: "[xdk]", action: flag}
  - {id: c, limit: {epsilon: 90, delta: 1e-3}, across: datasets, labels: {risk: high}, action: flag}
  - {id: w, limit: {epsilon: 90, delta: 1e-3}, window: 1h, action: flag}
  - {id: p, limit: {epsilon: 90, delta: 1e-3}, per: client, action: flag}
  - {id: u, limit: {epsilon: 90, delta: 1e-3}, unit: day, action: flag}
  - {id: z, limit: {epsilon: 1e6, delta: 1e-3}}
"""
GROUPS = st.sampled_from([{}, {"sex": ["f"]}, {"age": ["17"]}, {"sex": ["m"], "age": ["22"]}])
COSTS = st.sampled_from(
    [laplace("0.1"), laplace("0.01", 3), gaussian("0.1"), gaussian("0.2", "1e-6"), laplace(1)]
)
ASKS = st.tuples(
    st.sampled_from(["grant", "record"]),
    st.lists(st.sampled_from("defhk"), min_size=1, max_size=3, unique=True),
    COSTS,
    GROUPS,
    st.sampled_from(["pipe", "other"]),
)
STEPS = st.one_of(
    ASKS,
    ASKS,
    st.tuples(st.sampled_from(["commit", "release", "expire", "grow", "wait", "label", "policy"])),
)


def going_on(book: Book, what: str, *more: Any) -> None:
    """One step, which does the same wherever it is possible."""
    with suppress(Problem):  # as of a grant that is due
        if what in ("grant", "record"):
            names, costs, group, by = more
            ask = {"dataset": names, "subjects": group, "by": by}
            (book.grant if what == "grant" else book.record)(costs, **ask)
        elif what in ("commit", "release", "expire"):
            ending(book, what)
        elif what == "grow":
            ages = ["17", "22", "30", "41"][: book.state.people().shape[0] + 1]
            book.register({"sex": ["f", "m"], "age": ages}, attested_new=True, units=UNITS)
        elif what == "wait":
            book.now += 1_900 * SECOND
        elif what == "label":
            fields = {"id": "e", "namespace": "n", "name": "e", "parents": ["n/x"]}
            book.ask(make("register_dataset", **fields, labels={"risk": "high"}), "admin")
        else:
            book.policy(f"{LAW}  - {{id: y, limit: {{epsilon: 99}}}}\n", "officer", True)


def ending(book: Book, what: str) -> None:
    """Ends the first grant that is open."""
    for name in list(book.state.open)[:1]:
        by = book.state.open[name].by
        if what == "commit":
            book.do("commit_grant", by, grant=name)
        elif what == "release":
            book.do("release_grant", by, grant=name, reason="not run")
        else:
            book.now += 3_601 * SECOND
            book.do("expire_grant", ":accountant", grant=name)


UNITS = {"day": {"part_of": "person", "at_most": 2}}


def beginning() -> Book:
    """A ledger under the rules of the law, in which nothing was used."""
    book = Book()
    book.register({"sex": ["f", "m"], "age": ["17", "22"]}, units=UNITS)
    book.dataset("d")
    book.policy(LAW)
    return book


def never_less(late: Book, early: Book) -> None:
    """No cell of any account in force holds less in the first ledger than in the second. Under a
    limit that begins with sure sums of epsilons, other currencies stand for these.
    """
    for key, kept in early.state.accounts.items():
        if (key.rule, key.dataset) == ("c", "x"):
            continue  # what came into the total with other data is in it, and need not come again
        mine, theirs = late.state.seen(key), kept.at(early.now)
        n = len(theirs.axis)
        rows = (0, 1, n, n + 1) if key.rule == "b" else range(2 * n)
        for ours, least in zip(cells_of(mine.used), cells_of(theirs.used), strict=True):
            assert all(ours[row] >= least[row] for row in rows), key


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=14), st.integers(0, 14))
def test_late_is_never_less_than_early(steps: list[Any], at: int) -> None:
    """However a ledger goes on, a dataset that is registered late holds, in every cell and currency
    of every account, no less than if it had been known from the beginning.
    """
    late, early = beginning(), beginning()
    derive(early, "x")
    for book in (late, early):
        for name, parents in MADE.items():
            derive(book, name, *parents)
    for place, step in enumerate([*steps, ("wait",)]):
        if place == at or (place == len(steps) and "x" not in late.state.datasets):
            derive(late, "x", closes=["b"])
        for book in (late, early):
            going_on(book, *step)
        late.now = early.now = max(late.now, early.now)
    never_less(late, early)
    agrees(late)


def test_a_chain_of_before_reaches_new_cells_as_it_did() -> None:
    """What an old event did not charge is no ancestor of an open grant: its new cells count where
    the grant is held, and not in what the late dataset was made from.
    """
    book = hospital(RULES, {"sex": ["f", "m"], "town": ["1"]})
    derive(book, "e", "n/x")
    book.grant(laplace("0.1"), dataset="e", subjects={"sex": ["f"]})
    derive(book, "x")
    derive(book, "y")
    derive(book, "x", "y")
    book.register({"sex": ["f", "m"], "town": ["1", "2"]}, attested_new=True)
    state = last_replay(book.name, older(book)).state
    assert lifetime("x") not in state.accounts
    assert lifetime("y") not in state.accounts
    agrees(book)


def test_a_correction_reaches_whoever_was_charged_with_it() -> None:
    """Also a dataset that is no ancestor any more: had it been known from the beginning, it would
    be named in the event that is corrected.
    """
    for names in (("x", "e"), ("e", "x")):
        book = hospital(RULES)
        for name in names:
            derive(book, name, *["n/x"] * (name == "e"))
            if name == "e":
                recorded = book.record(laplace("0.1"), dataset="e")
        derive(book, "e", confirmed_by="officer")
        state = book.state
        charged = recorded.body.get("charged", "e")
        corrected(state, recorded.sequence, charged)
        assert [state.account(lifetime(name)).used.everyone[0] for name in "ex"] == [
            300 * 10**6
        ] * 2


def test_what_a_root_lacks_is_charged_beside_it() -> None:
    """Where an old event did not charge ``e`` with what ``f``, made from it, had used, a late
    ancestor of both is charged with both.
    """
    book = hospital(RULES)
    derive(book, "f", "e", "n/x")
    book.record(laplace("0.3"), dataset="f")
    derive(book, "e", "n/x")
    book.state, book.stored = last_replay(book.name, older(book)).state, older(book)
    book.record(laplace("0.2"), dataset="e")
    assert book.state.datasets["e"].uncharged == ("f",)
    assert derive(book, "x").body["charged_with"] == {"x": ["e", "f"]}
    assert epsilons(book, "e", "f", "x") == [200, 300, 500]
    assert audited(book).findings == []
    agrees(book)


def test_a_parent_of_what_was_never_charged_lacks_it_too() -> None:
    """Where the dataset between was not used itself, its new parent is charged all the same; and
    if no event says so, it is named with it.
    """
    book = hospital(RULES)
    derive(book, "e", "n/x")
    book.record(laplace("0.3"), dataset="e")
    derive(book, "x")
    book.state, book.stored = last_replay(book.name, older(book)).state, older(book)
    assert derive(book, "x", "y").body.get("charged_with") is None
    assert derive(book, "y").body["charged_with"] == {"y": ["e"]}
    assert epsilons(book, "e", "x", "y") == [300, 0, 300]
    assert audited(book).findings == []
    agrees(book)
    state = last_replay(book.name, older(book)).state
    assert uncharged(state.datasets) == {"x": ["e"], "y": ["e"]}


def test_it_is_told_who_was_charged_with_what() -> None:
    """In the list of events: a new parent of data that were used is charged with these, and not
    only with what was made from them.
    """
    book = hospital(RULES)
    for name in ("e", "f", "g"):
        derive(book, name, *["f"] * (name == "g"))
    for name in ("e", "g"):
        book.record(laplace("0.2"), dataset=name)
    event = derive(book, "e", "d", "g")
    told = sentence(event, rfc3339(event.time)).text
    assert told == "admin registered e. This charged d, f, g with what had been used of e."
