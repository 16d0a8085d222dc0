"""Which datasets a request is charged to: those that it names, and what they were made from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support import SECOND, Book, hospital, laplace, make, proposed, snapshot, sparse_vector

from accountant.budget.advice import would_fit
from accountant.budget.apply import drop_journal, keep_journal, rollback
from accountant.budget.decide.datasets import check_parents
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.evaluate import how_many
from accountant.budget.population.naming import normal_form
from accountant.budget.reach import Reach
from accountant.budget.request import prepare
from accountant.budget.snapshot import dump, load
from accountant.budget.state import ALL

RULES = """
  - {id: a, limit: {epsilon: 1}}
  - {id: person, across: datasets, limit: {epsilon: 5}}
  - {id: mine, per: client, limit: {epsilon: 2}, action: flag}
  - {id: half, of: a, at: 50%}
"""


def ledger(rules: str = RULES) -> Book:
    """A ledger with the datasets ``d``, ``e`` and ``f``."""
    book = hospital(rules)
    book.dataset("e")
    book.dataset("f")
    return book


def derive(book: Book, name: str, *parents: str, **more: Any) -> Any:
    """Registers a dataset that was made from others."""
    fields = {"id": name, "namespace": "n", "name": name, "parents": list(parents)} | more
    return book.do("register_dataset", "admin", **fields)


def epsilons(book: Book, *datasets: str, rule: str = "") -> list[int]:
    """Milli-epsilons used of each dataset, by default over its lifetime."""
    return [book.used(rule, name)[0][0] // 10**6 for name in datasets]


def agrees(book: Book) -> None:
    """Replay finds nothing, and a snapshot is the same state."""
    assert book.replayed().findings == []
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)


# -- several datasets in one request ---------------------------------------------------------


def test_one_query_over_several_datasets_is_one_grant() -> None:
    """Each dataset is charged in full, and a person's total over them once."""
    book = ledger()
    event = book.grant(laplace("0.3"), dataset=["e", "d"])
    assert event.body["command"]["dataset"] == ["d", "e"]
    assert "charged" not in event.body
    assert epsilons(book, "d", "e", "f", ALL) == [300, 300, 0, 300]
    assert epsilons(book, "d", "e", "f", rule="a") == [300, 300, 0]
    assert epsilons(book, ALL, rule="person") == [300]
    assert book.used("mine", "e", "pipe")[0][0] == 300 * 10**6
    assert [grant.on.named for grant in book.state.open.values()] == [("d", "e")]
    agrees(book)


def test_a_single_dataset_is_spelled_as_ever() -> None:
    """A list of one is the same request, to the byte, and the order of several does not matter."""
    one, same = ledger(), ledger()
    one.grant(laplace("0.3"))
    same.grant(laplace("0.3"), dataset=["d"])
    assert one.stored == same.stored
    spelled = [
        make("ask_grant", dataset=d, mechanisms=[laplace(1)]) for d in (["d", "e"], ["e", "d"])
    ]
    assert spelled[0].to_json() == spelled[1].to_json()


@pytest.mark.parametrize(
    "names", [[], ["d", "d"], [f"d{n}" for n in range(21)], ["d", "E"], [["d"]], 7, ["d", None]]
)
def test_what_is_no_list_of_datasets(names: Any) -> None:
    """One to twenty ids, none of them twice."""
    with pytest.raises(ValidationError):
        make("ask_grant", dataset=names, mechanisms=[laplace(1)])


def test_an_unknown_dataset_among_them_is_named() -> None:
    """All of them have to be registered."""
    with pytest.raises(Invalid, match="no dataset is called 'x'"):
        ledger().grant(laplace("0.3"), dataset=["d", "x"])


def test_it_fits_only_where_it_fits_in_each() -> None:
    """A dataset without room refuses the whole; the event says which, with its sums."""
    book = ledger()
    book.record(laplace("0.4"), dataset="d")
    book.record(laplace("0.8"), dataset="e")
    event = book.grant(laplace("0.3"), dataset=["d", "e", "f"])
    assert event.type == "grant.refused.v1"
    assert event.body["rules"]["a"]["dataset"] == "e"
    assert event.body["rules"]["a"]["used"][0] == str(800 * 10**6)
    assert "dataset" not in event.body["rules"]["person"]
    [found] = [one for one in book.decision(event)["rules"] if one["rule"] == "a"]
    assert (found["dataset"], found["spent_before"]) == ("e", "0.8")
    assert "(dataset e)" in found["text"]
    fits = book.grant(laplace("0.2"), dataset=["d", "e", "f"])
    assert fits.type == "grant.reserved.v1"
    assert fits.body["rules"]["a"]["dataset"] == "e"
    assert ["half", "threshold-passed"] in fits.body["fired"]
    agrees(book)


def test_of_datasets_that_have_used_the_same_the_first_is_quoted() -> None:
    """The event is the same on every machine."""
    event = ledger().grant(laplace("0.3"), dataset=["f", "e"])
    assert event.body["rules"]["a"]["dataset"] == "e"


def test_previews_and_advice_look_at_all_of_them() -> None:
    """How many fit, and what would, follows from the fullest dataset."""
    book = ledger()
    book.record(laplace("0.8"), dataset="e")
    asked = make("ask_grant", dataset=["d", "e"], mechanisms=[laplace("0.1", 9)])
    request = prepare(
        book.state,
        "pipe",
        make("ask_grant", dataset=["d", "e"], mechanisms=[laplace("0.1")]),
        book.now,
    )
    assert how_many(book.state, request) == 2
    state = book.state.about(["d", "e"], "pipe", book.now)
    assert would_fit(state, "pipe", asked, book.now)["count"] == 2


@pytest.mark.parametrize("ending", ["commit", "release", "expire"])
def test_a_grant_ends_in_all_its_accounts(ending: str) -> None:
    """What comes back comes back everywhere, what is spent is spent everywhere."""
    book = ledger()
    event = book.grant(laplace("0.1", 3), dataset=["d", "f"], ttl_seconds=60)
    name = f"g{event.sequence}"
    if ending == "commit":
        book.do("commit_grant", grant=name, mechanisms=[laplace("0.1")])
    elif ending == "release":
        book.do("release_grant", grant=name, reason="x")
    else:
        book.now += 61 * SECOND
        book.do("expire_grant", ":accountant", grant=name)
    left = {"commit": 100, "release": 0, "expire": 300}[ending]
    assert epsilons(book, "d", "e", "f", ALL) == [left, 0, left, left]
    assert epsilons(book, "d", "f", rule="a") == [left, left]
    assert book.state.grant(name).on == Reach(("d", "f"), ("d", "f"))
    agrees(book)


def test_sessions_records_and_batches_take_several() -> None:
    """Every request that names a dataset may name more."""
    book = ledger()
    opened = book.do("open_sparse_vector", dataset=["d", "e"], mechanism=sparse_vector())
    book.do("close_sparse_vector", grant=f"g{opened.sequence}")
    assert epsilons(book, "d", "e", "f", ALL) == [100, 100, 0, 100]
    book.record(laplace("0.2"), dataset=["e", "f"])
    asks = [
        make("ask_grant", dataset=names, mechanisms=[laplace("0.1")])
        for names in (["d", "f"], "f", ["d", "e", "f"])
    ]
    book.batch(*asks)
    assert epsilons(book, "d", "e", "f", ALL) == [300, 400, 500, 600]
    agrees(book)


def test_open_grants_are_listed_under_each_dataset() -> None:
    """Whoever looks for the grants on a dataset finds those that name others as well."""
    book = ledger()
    book.grant(laplace("0.1"), dataset=["d", "e"])
    book.grant(laplace("0.1"), dataset="e")
    sizes = [len(book.state.grants.page(None, name, -1, 9)) for name in ("d", "e", "f")]
    assert sizes == [1, 2, 0]


def test_rules_on_any_of_the_datasets_apply() -> None:
    """A rule about one dataset is not avoided by naming another beside it."""
    book = ledger(RULES + "  - {id: why, require: [purpose], datasets: e}\n")
    assert book.grant(laplace("0.1"), dataset="d").type == "grant.reserved.v1"
    refused = book.grant(laplace("0.1"), dataset=["d", "e"])
    assert refused.body["fired"] == [["why", "reason-required"]]
    narrow = ledger("  - {id: a, datasets: d, limit: {epsilon: 1}}\n")
    event = narrow.grant(laplace("0.1"), dataset=["d", "e", "f"])
    assert event.body["fired"] == [["built-in:no-limit", "no-limit"]]
    assert "covers dataset 'e', 'f'" in narrow.decision(event)["rules"][0]["text"]
    agrees(narrow)


# -- datasets that were made from others -----------------------------------------------------


def test_what_a_dataset_was_made_from_is_charged_with_it() -> None:
    """All ancestors are charged, each once, and the person's total once."""
    book = ledger()
    assert derive(book, "g", "d", "elsewhere").body["made_from"] == ["d"]
    assert derive(book, "h", "g", "e").body["made_from"] == ["e", "g"]
    event = book.grant(laplace("0.3"), dataset="h")
    assert event.body["charged"] == ["d", "e", "g", "h"]
    assert epsilons(book, "d", "e", "f", "g", "h", ALL) == [300, 300, 0, 300, 300, 300]
    both = book.grant(laplace("0.1"), dataset=["g", "h"])
    assert both.body["charged"] == ["d", "e", "g", "h"]
    assert "charged" not in book.grant(laplace("0.1"), dataset=["d", "g"]).body
    assert epsilons(book, "d", "e", "f", "g", "h", ALL) == [500, 400, 0, 500, 400, 500]
    agrees(book)


def test_what_an_ancestor_has_used_counts() -> None:
    """Deriving a table gives no fresh budget."""
    book = ledger()
    derive(book, "g", "d")
    book.record(laplace("0.9"), dataset="d")
    event = book.grant(laplace("0.2"), dataset="g")
    assert event.type == "grant.refused.v1"
    assert event.body["rules"]["a"]["dataset"] == "d"
    denied = hospital(
        "  - {id: w, limit: {epsilon: 1}}\n  - {id: no, mechanisms: [laplace], datasets: d}\n"
    )
    derive(denied, "g", "d")
    assert denied.grant(laplace("0.1"), dataset="g").body["fired"] == [["no", "mechanism-denied"]]
    assert [
        one["rule"] for one in denied.decision(denied.grant(laplace("0.1"), dataset="g"))["rules"]
    ] == ["no", "w"]


def test_parents_may_be_named_by_their_data() -> None:
    """A parent is an id, or namespace/name in any spelling."""
    book = ledger()
    book.do("register_dataset", "admin", id="v", namespace="postgres://w", name="public.visits")
    for name, parent in (("g", "postgresql://W:5432/Public.Visits"), ("h", "N/d")):
        [found] = derive(book, name, parent).body["made_from"]
        assert found == {"g": "v", "h": "d"}[name]
    agrees(book)


def test_a_parent_may_come_later() -> None:
    """It is charged with what was used before it was registered, and from then on too."""
    book = ledger()
    derive(book, "g", "late", "N/later")
    book.record(laplace("0.1"), dataset="g")
    assert derive(book, "late").body["made_into"] == ["g"]
    fields = {"id": "other", "namespace": "n", "name": "later"}
    event = book.do("register_dataset", "admin", **fields)
    assert (event.body["made_into"], event.body["charged_with"]) == (["g"], {"other": ["g"]})
    assert epsilons(book, "g", "late", "other", ALL) == [100, 100, 100, 100]
    book.record(laplace("0.2"), dataset="g")
    assert epsilons(book, "g", "late", "other", ALL) == [300, 300, 300, 300]
    agrees(book)


@pytest.mark.parametrize("parents", [("g",), ("n/g",), ("i",)])
def test_nothing_is_made_from_itself(parents: tuple[str, ...]) -> None:
    """A circle is refused, wherever it closes."""
    book = ledger()
    derive(book, "h", "g")
    derive(book, "i", "h")
    before = len(book.stored)
    with pytest.raises(Conflict, match="made from itself") as refused:
        derive(book, "g", *parents)
    assert refused.value.code == "dataset-circle"
    derive(book, "g")
    with pytest.raises(Conflict, match="made from itself"):
        derive(book, "g", *parents)
    assert len(book.stored) == before + 1
    agrees(book)


def test_charges_stay_when_parents_change() -> None:
    """What was booked stays where it was booked; a new parent is charged with what was used, and so
    is one that is stated again; an open grant ends wherever it is held.
    """
    book = ledger()
    derive(book, "g", "d")
    opened = book.grant(laplace("0.1", 3), dataset="g")
    proposed(derive(book, "g", "e"), "would no longer count on d")
    with pytest.raises(Forbidden):
        derive(book, "g", "e", confirmed_by="admin")
    derive(book, "g", "e", confirmed_by="officer")
    book.record(laplace("0.2"), dataset="g")
    assert epsilons(book, "d", "e", "g") == [300, 500, 500]
    book.do("commit_grant", grant=f"g{opened.sequence}", mechanisms=[laplace("0.1")])
    assert epsilons(book, "d", "e", "g", ALL) == [100, 300, 300, 300]
    derive(book, "g", "e", "d")  # more is no loosening
    assert epsilons(book, "d", "e", "g", ALL) == [400, 300, 300, 300]
    assert book.grant(laplace("0.1"), dataset="g").body["charged"] == ["d", "e", "g"]
    agrees(book)


def test_new_cells_are_held_in_all_accounts() -> None:
    """A grant that is open while the population grows holds its charge there for its ancestors too,
    in rules that were adopted since as well.
    """
    book = Book()
    book.register({"sex": ["f", "m"], "age": ["17"]})
    for name in ("d", "e"):
        book.dataset(name)
    derive(book, "g", "d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    opened = book.grant(laplace("0.3"), dataset=["e", "g"], subjects={"sex": ["f"]})
    derive(book, "g", confirmed_by="officer")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n  - {id: b, datasets: d, limit: {epsilon: 2}}\n")
    book.register({"sex": ["f", "m"], "age": ["17", "22"]}, attested_new=True)
    for name in ("d", "e", "g"):
        assert [units[0] // 10**6 for units in book.used("a", name)] == [300, 0, 300, 0]
    assert [units[0] // 10**6 for units in book.used("b", "d")][2] == 300
    book.do("release_grant", grant=f"g{opened.sequence}", reason="x")
    assert not any(any(units) for name in ("d", "e", "g") for units in book.used("a", name))
    agrees(book)


def test_what_is_taken_back_is_gone_everywhere() -> None:
    """A commit that fails leaves no account that was opened for it."""
    book = ledger()
    derive(book, "g", "d")
    before = snapshot(book.state)
    keep_journal(book.state)
    book.grant(laplace("0.3"), dataset=["e", "g"])
    book.record(laplace("0.3"), dataset=["f", "g"])
    assert rollback(book.state)
    drop_journal(book.state)
    assert snapshot(book.state) == before


@given(st.lists(st.sampled_from("abcde"), min_size=1, unique=True), st.data())
def test_a_reach_is_kept_as_text(named: list[str], data: st.DataObject) -> None:
    """Named and charged datasets come back from their text."""
    more = data.draw(st.lists(st.sampled_from("abcdefgh"), unique=True))
    reach = Reach(tuple(sorted(named)), tuple(sorted({*named, *more})))
    assert Reach.read(reach.text) == reach


def test_the_parents_of_other_datasets_are_read_once() -> None:
    """One more dataset is registered without reading again what the parents of all others mean,
    which are more than are remembered.
    """
    book = ledger()
    for number in range(50):
        parents = [f"n/p{number}-{place}" for place in range(100)]
        derive(book, f"m{number}", *parents)
    book.dataset("another")
    late = make("register_dataset", id="late", namespace="n", name="p7-7", parents=["n/x"])
    before = normal_form.cache_info().misses
    check_parents(book.state, late)
    [event] = book.ask(late, "admin")
    assert event.body["made_into"] == ["m7"]
    assert normal_form.cache_info().misses - before < 100
