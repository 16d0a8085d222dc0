"""Requests on several datasets, and on data made from others, as both verifiers see them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import bundles
import pytest
from bundles import SUBJECTS, canonical, take
from effort import examples
from forger import Forger
from house import House, audit, reasons, resident
from hypothesis import given, settings
from hypothesis import strategies as st
from support import (
    Book,
    audited,
    gaussian,
    laplace,
    make,
    snapshot,
    sparse_vector,
    sums_agree,
)

from accountant import verify_minimal
from accountant.budget.ancestors import uncharged
from accountant.budget.errors import Problem
from accountant.budget.outcome import CHARGING, REGISTERED
from accountant.budget.snapshot import dump, load

RULES = """
  - {id: a, limit: {epsilon: 3, delta: 1e-3}, gate: zcdp}
  - {id: n, of: a, at: 40%}
  - {id: b, across: datasets, limit: {epsilon: 5, delta: 1e-5}, action: flag}
  - {id: c, per: client, limit: {epsilon: 1, delta: 1e-3}, datasets: "[df]", action: flag}
  - {id: w, window: 1h, limit: {epsilon: 2, delta: 1e-3}, action: flag}
  - {id: few, datasets: "[dg]", limit: {epsilon: 3, delta: 1e-3}, action: flag}
  - {id: all, datasets: "[eh]", across: datasets, limit: {epsilon: 3, delta: 1e-3}, action: flag}
  - {id: no, mechanisms: [exponential], datasets: e}
"""
NAMES = st.lists(st.sampled_from("defgh"), min_size=1, max_size=4, unique=True)
OURS = st.one_of(
    st.tuples(
        st.sampled_from(["ask", "ran", "both"]),
        NAMES,
        st.sampled_from(SUBJECTS[:5]),
        st.integers(1, 9),
    ),
    st.tuples(st.just("parents"), st.sampled_from("defgh"), NAMES, st.integers(0, 1)),
)


def ours(book: Book, what: str, first: Any, second: Any, number: int) -> None:
    """One step that is about several datasets."""
    if what == "parents":
        fields = {"id": first, "namespace": "n", "name": first, "parents": second}
        fields["closes"] = ["few", "all"]
        second = "officer" if number else None
        book.ask(make("register_dataset", **fields), "admin", confirmed_by=second)
    elif what == "ask":
        book.grant(laplace("0.1", number), gaussian("0.1"), dataset=first, subjects=second)
    elif what == "ran":
        book.record(laplace("0.1", number), gaussian("0.2"), dataset=first, subjects=second)
    else:
        held = sorted(book.state.open)[:1]
        items = [make("release_grant", grant=name, reason="never run") for name in held]
        for names, costs in ((first, laplace("0.1", number)), (first[:1], gaussian("0.3"))):
            ask = {"dataset": names, "subjects": second, "mechanisms": [costs]}
            items.append(make("ask_grant", **ask))
        book.batch(*items)


@settings(max_examples=examples(60))
@given(st.lists(OURS | bundles.STEPS, max_size=20))
def test_all_agree_on_what_is_charged(steps: list[Any]) -> None:
    """What the events add up to is what the service has, in every cell of every account; replay and
    the small verifier find nothing wrong, and a snapshot is the same state.
    """
    book, people = Book(), {"age": ["17", "22"], "sex": ["f", "m"]}
    book.register(people)
    for name in "def":
        book.dataset(name)
    book.policy(RULES)
    for step in steps:
        with suppress(Problem):  # which leaves no event
            if len(step) == 4:
                ours(book, *step)
            else:
                take(book, people, "public", *step)
    sums_agree(book)
    assert book.replayed().findings == []
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)


REQUESTS = st.lists(st.tuples(NAMES, st.integers(1, 9)), max_size=8)
EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6)


@given(EDGES, REQUESTS)
def test_every_ancestor_is_charged_once(edges: list[tuple[int, int]], asked: list[Any]) -> None:
    """By its definition: a dataset loses what is asked about it and about all that it led to, and
    a person over all of them what is asked, once.
    """
    book, names = Book(), "defgh"
    book.register()
    parents = {name: {names[a] for a, b in edges if names[b] == name and a < b} for name in names}
    for name in names:
        stated = sorted(parents[name])
        book.do("register_dataset", "admin", id=name, namespace="n", name=name, parents=stated)
    book.policy("  - {id: a, limit: {epsilon: 1000}}\n")

    def behind(name: str) -> set[str]:
        return {name}.union(*map(behind, parents[name]))

    lost = dict.fromkeys([*names, "*"], 0)
    for on, number in asked:
        book.record(laplace("0.1", number), dataset=on)
        for name in set().union(*map(behind, on)) | {"*"}:
            lost[name] += number * 10**8
    assert {name: book.used("", name)[0][0] for name in lost} == lost


@pytest.fixture
def book() -> Book:
    """A ledger in which ``g`` was made from ``d``, and somebody asked about ``e`` and ``g``."""
    found = Book()
    found.register()
    for name in "de":
        found.dataset(name)
    found.do("register_dataset", "admin", id="g", namespace="n", name="g", parents=["d"])
    found.policy("  - {id: a, limit: {epsilon: 1}}\n")
    found.record(laplace("0.5"), dataset="d")
    found.grant(laplace("0.3"), dataset=["e", "g"])
    return found


FORGED = {
    "an ancestor is left out": {"charged": ["e", "g"]},
    "nothing is said": {"charged": ...},
    "another is charged": {"charged": ["d", "e", "g", "x"]},
    "another account decides": {"rules": {"a": {"dataset": "e", "used": ["0", "0"]}}},
    "no dataset is quoted": {"rules": {"a": {"used": ["500000000", "0"]}}},
    "sums of another dataset": {"rules": {"a": {"dataset": "e", "used": ["500000000", "0"]}}},
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_what_an_event_says_wrongly_of_its_datasets(book: Book, change: dict[str, Any]) -> None:
    """Neither verifier believes other datasets, or another account, than what follows."""
    event = json.loads(book.stored[-1])
    assert (event["charged"], event["rules"]["a"]["dataset"]) == (["d", "e", "g"], "d")
    forged = {name: value for name, value in (event | change).items() if value is not ...}
    book.stored[-1] = canonical(forged)
    assert [each["where"] for each in audited(book).findings][-1:] == [len(book.stored) - 1]
    assert [found.sequence for found in book.replayed().findings][:1] == [len(book.stored) - 1]


E, F = ({"dataset": name, "used": [f"{used}00000000", "0"]} for name, used in (("e", 7), ("f", 6)))
BESIDE = {
    "one is left out": {"beside": [E]},
    "all are left out": {"beside": ...},
    "one is only counted": {"beside": [E], "more": 1},
    "another order": {"beside": [F, E]},
    "one is told twice": {"beside": [E, F, F]},
    "one in which it fits": {"beside": [E, F, {"dataset": "d", "used": ["100000000", "0"]}]},
    "other sums": {"beside": [E, F | {"used": ["700000000", "0"]}]},
    "more than there are": {"more": 1},
}


@pytest.mark.parametrize("change", BESIDE.values(), ids=BESIDE)
def test_what_a_refusal_says_wrongly_of_other_accounts(change: dict[str, Any]) -> None:
    """Both verifiers know in which accounts a charge did not fit, and in which order they stand."""
    book = Book()
    book.register()
    for name, used in (("d", "0.1"), ("e", "0.7"), ("f", "0.6"), ("g", "0.8")):
        book.dataset(name)
        book.state.adopted or book.policy("  - {id: a, limit: {epsilon: 1}}\n")
        book.record(laplace(used), dataset=name)
    book.grant(laplace("0.5"), dataset=["d", "e", "f", "g"])
    assert audited(book).findings == book.replayed().findings == []
    event = json.loads(book.stored[-1])
    seen = event["rules"]["a"]
    assert (seen["dataset"], seen["beside"]) == ("g", [E, F])
    event["rules"]["a"] = {n: value for n, value in (seen | change).items() if value is not ...}
    book.stored[-1] = canonical(event)
    assert [each["where"] for each in audited(book).findings][-1:] == [len(book.stored) - 1]
    assert [found.sequence for found in book.replayed().findings][:1] == [len(book.stored) - 1]


@pytest.mark.parametrize("made_from", [[], ["e"], ...])
def test_what_a_registration_says_wrongly_of_its_parents(book: Book, made_from: Any) -> None:
    """A parent that is registered is one that is charged."""
    event = json.loads(book.stored[3])
    assert event["made_from"] == ["d"]
    forged = {name: v for name, v in (event | {"made_from": made_from}).items() if v is not ...}
    book.stored[3] = canonical(forged)
    assert 3 in [each["where"] for each in audited(book).findings]
    assert 3 in [found.sequence for found in book.replayed().findings]


@pytest.fixture
def late() -> Book:
    """A ledger in which ``g`` was used before ``x``, which it was made from, was registered."""
    found = Book()
    found.register()
    found.do("register_dataset", "admin", id="g", namespace="n", name="g", parents=["n/x"])
    few = "  - {id: b, datasets: x, limit: {epsilon: 2, delta: 1e-6}}\n"
    found.policy(f"  - {{id: a, limit: {{epsilon: 1}}}}\n{few}")
    found.grant(laplace("0.5"), dataset="g")
    found.dataset("x")
    found.grant(laplace("0.3"), dataset="x")
    return found


def changed(book: Book, place: int, change: dict[str, Any]) -> None:
    """Writes an event anew; what is ``...`` is left out."""
    event = json.loads(book.stored[place]) | change
    book.stored[place] = canonical({n: value for n, value in event.items() if value is not ...})


LATE: dict[str, dict[str, Any]] = {
    "nothing is charged": {"charged_with": {}},
    "another is": {"charged_with": {"g": ["x"]}},
    "one more is": {"charged_with": {"x": ["g"], "g": ["g"]}},
    "with nothing": {"charged_with": {"x": []}},
    "other orders": {"orders": {"b": {"rho": "7"}}},
    "orders of another rule": {"orders": {"a": {"rho": "7"}}},
    "no orders": {"orders": ...},
    "nothing at all": {"charged_with": ..., "orders": ...},
    "as what charges nothing": {"type": REGISTERED},
    "orders without": {"type": REGISTERED, "charged_with": ...},
}


@pytest.mark.parametrize("change", LATE.values(), ids=LATE)
def test_what_a_registration_says_wrongly_of_what_was_used(
    late: Book, change: dict[str, Any]
) -> None:
    """Neither verifier believes what a late ancestor is charged with."""
    assert json.loads(late.stored[-2])["type"] == CHARGING
    found_out(late, -2, change)


def found_out(book: Book, at: int, change: dict[str, Any]) -> None:
    """Both verifiers find something in an event once it is changed."""
    assert audited(book).findings == book.replayed().findings == []
    place = at % len(book.stored)
    changed(book, place, change)
    assert place in [each["where"] for each in audited(book).findings]
    assert place in [found.sequence for found in book.replayed().findings]


NOTHING_DUE: dict[str, dict[str, Any]] = {
    "it charges": {"charged_with": {"d": ["g"]}},
    "it charges nothing": {"charged_with": {}},
    "it has orders": {"orders": {}},
    "its type charges": {"type": CHARGING},
    "its type charges nothing": {"type": CHARGING, "charged_with": {}},
}


@pytest.mark.parametrize("change", NOTHING_DUE.values(), ids=NOTHING_DUE)
def test_a_registration_that_charges_is_of_a_type_of_its_own(
    late: Book, change: dict[str, Any]
) -> None:
    """Where no dataset is charged the event is as it was before there was the type (ADR 0068)."""
    place = next(at for at, one in enumerate(late.stored) if b"dataset.registered" in one)
    assert json.loads(late.stored[place])["type"] == REGISTERED
    found_out(late, place, change)


def test_an_account_that_goes_on_leaves_the_one_before_as_it_was() -> None:
    """What a late ancestor is charged with, in an account that was carried into a new epoch, is not
    in the account of the epoch before.
    """
    book, rules = Book(), "  - {{id: a, gate: zcdp, limit: {{epsilon: {}, delta: 1e-6}}}}\n"
    book.register()
    book.dataset("x")
    book.do("register_dataset", "admin", id="g", namespace="n", name="g")
    book.policy(rules.format(3))
    book.record(laplace("0.2"), dataset="x")
    book.record(laplace("0.3"), dataset="g")
    book.policy(rules.format(2))
    fields = {"id": "g", "namespace": "n", "name": "g", "parents": ["x"]}
    event = book.do("register_dataset", "admin", **fields)
    assert event.body["charged_with"] == {"x": ["g"]}
    assert [key.epoch for key in book.state.accounts if key[0] == "a"] == [1, 1, 2, 2]
    sums_agree(book)


def test_who_says_nothing_of_what_was_used_is_found_out(late: Book) -> None:
    """Without the field, as before version 0.3, nothing is charged: both verifiers say so, and what
    was granted by other sums is a finding.
    """
    changed(late, -2, {"type": REGISTERED, "charged_with": ..., "orders": ...})
    found, again = audited(late), late.replayed()
    assert {name: others for name, others in found.uncharged.items() if others} == {"x": {"g"}}
    assert uncharged(again.state.datasets) == {"x": ["g"]}
    last = len(late.stored) - 1
    assert [each["where"] for each in found.findings] == [last]
    assert [one.sequence for one in again.findings] == [last]


def test_a_bundle_with_joins_is_sound(house: Callable[..., House]) -> None:
    """The whole way: service, bundle, both verifiers, with sessions, batches and expiries."""
    made = resident(house())
    for name, parents in (("e", []), ("g", ["d"]), ("h", ["g", "n/e"])):
        fields = {"id": name, "namespace": "n", "name": name, "parents": parents}
        made.do("register_dataset", "admin", **fields)
    grant = made.do("ask_grant", dataset=["d", "h"], mechanisms=[laplace("0.02", 2)])
    made.do("commit_grant", grant=f"g{grant.sequence}", mechanisms=[laplace("0.02")])
    made.do("record_invocations", dataset="h", mechanisms=[laplace("0.01")])
    session = made.do("open_sparse_vector", dataset=["e", "g"], mechanism=sparse_vector())
    made.do("count_answers", grant=f"g{session.sequence}", positives=1, negatives=5)
    made.do("close_sparse_vector", grant=f"g{session.sequence}")
    made.do("ask_grant", dataset=["d", "e"], mechanisms=[laplace("0.01")])
    fields = {"id": "e", "namespace": "n", "name": "e", "parents": ["n/late"]}
    made.do("register_dataset", "admin", **fields)
    event = made.do("register_dataset", "admin", id="late", namespace="n", name="late")
    assert event.body["charged_with"] == {"late": ["e"]}
    bundle = made.bundle()
    assert reasons(audit(bundle)) == []
    assert verify_minimal.verify(io.BytesIO(bundle))["findings"] == []


def test_a_bundle_of_before_is_sound_and_says_what_it_lacks(
    house: Callable[..., House], tmp_path: Path
) -> None:
    """A ledger of a version before 0.3 has no finding; both verifiers name what a late ancestor is
    not charged with, and how to charge it.
    """
    made = resident(house())
    fields = {"id": "g", "namespace": "n", "name": "g", "parents": ["n/x"]}
    made.do("register_dataset", "admin", **fields)
    made.do("record_invocations", dataset="g", mechanisms=[laplace("0.01")])
    made.do("register_dataset", "admin", id="x", namespace="n", name="x")
    made.do("record_invocations", dataset="d", mechanisms=[laplace("0.01")])
    forger = Forger(made)
    event = forger.events[forger.of(CHARGING)]
    del event["charged_with"]
    event["type"] = REGISTERED
    bundle = tmp_path / "old.tar"
    bundle.write_bytes(forger.bundle())
    command = [sys.executable, "-m", "accountant", "verify", str(bundle)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "x is not charged with what had been used of g" in " ".join(told.split())
    command = [sys.executable, verify_minimal.__file__, str(bundle)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "x lacks earlier use of g" in told


SUBJECTS = {"subjects": [{"age": ["young"]}]}
LISTED = {
    "none is listed": ...,
    "one is left out": [{"datasets": {"bits": "Ag"}}],
    "all cells are": [{}],
    "other cells": [{"datasets": {"bits": "AQ"}, **SUBJECTS}, {"datasets": {"bits": "Ag"}}],
    "cells are not told": [
        {"datasets": {"bits": "AQ"}},
        {"datasets": {"bits": "Ag"}, "part": True},
    ],
    "one is listed twice": [{"datasets": {"bits": "AQ"}}, {}],
    "nothing is listed": [],
}


@pytest.fixture(scope="module")
def partly() -> Book:
    """A ledger that ends with a refusal on two datasets: of the first in one cell."""
    found = Book()
    found.register({"age": ["old", "young"]})
    for name in "de":
        found.dataset(name)
    found.policy("  - {id: a, limit: {epsilon: 1}}\n")
    found.record(laplace("0.7"), dataset="d", subjects={"age": ["old"]})
    found.record(laplace("0.8"), dataset="e")
    found.grant(laplace("0.5"), dataset=["d", "e"])
    return found


@pytest.mark.parametrize("listed", LISTED.values(), ids=LISTED)
def test_what_a_refusal_says_wrongly_of_all_accounts(partly: Book, listed: Any) -> None:
    """Both verifiers know every exhausted account, and the cells in which it is."""
    honest = partly.stored[-1]
    event = json.loads(honest)
    assert event["exhausted"] == [
        {"datasets": {"bits": "AQ"}, "subjects": [{"age": ["old"]}]},
        {"datasets": {"bits": "Ag"}},
    ]
    assert audited(partly).findings == partly.replayed().findings == []
    forged = {n: v for n, v in (event | {"exhausted": listed}).items() if v is not ...}
    try:
        partly.stored[-1] = canonical(forged)
        assert [each["where"] for each in audited(partly).findings] == [len(partly.stored) - 1]
        found = partly.replayed().findings
        assert [one.sequence for one in found][:1] == [len(partly.stored) - 1]
    finally:
        partly.stored[-1] = honest


def test_an_open_session_counts_in_a_window_of_a_late_ancestor() -> None:
    """Both verifiers count there what a session may still spend, under a window that does not name
    the data that it asks about.
    """
    book = Book()
    book.register()
    book.do("register_dataset", "admin", id="e", namespace="n", name="e", parents=["n/x"])
    wide = "  - {id: w, window: 2h, datasets: x, limit: {epsilon: 2, delta: 1e-3}}\n"
    book.policy(f"  - {{id: a, limit: {{epsilon: 9, delta: 1e-3}}}}\n{wide}")
    book.do("open_sparse_vector", dataset="e", mechanism=sparse_vector())
    book.dataset("x")
    [spent] = book.used("w", "x")
    assert spent[0] == 2 * book.used("a", "e")[0][0]
    assert book.grant(laplace("0.1"), dataset="x").type == "grant.reserved.v1"
    assert audited(book).findings == book.replayed().findings == []
