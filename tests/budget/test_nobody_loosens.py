"""Every command is named: it never loosens, and why, or its loosening case is only proposed. A new
command that is in neither table fails here, so that whoever adds it has to say which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import Book, hospital, laplace, make, snapshot, sparse_vector

from accountant.budget.commands import COMMANDS, AdoptPolicy, Change, Command
from accountant.budget.errors import Forbidden
from accountant.budget.facts import grant_in
from accountant.budget.outcome import PROPOSED
from accountant.budget.policy_file import parse_policy

WORD = "  - {id: a, limit: {epsilon: 9, delta: 1e-6}}\n  - {id: word, trusted: {epsilon: 0}}\n"

NEVER = {
    "admit_grant": "it follows from the ledger, and only spends",
    "adopt_engine": "what was booked stays; the program's later bounds are those found right",
    "adopt_signing_key": "the key in force vouches for the next; no sum and no rule changes",
    "ask_grant": "it only spends",
    "approve_grant": "it is another person's than whoever asked, or made their key lately",
    "batch": "an item that loosens is refused",
    "batch_part": "it holds a part of a batch that was refused",
    "carry_over": "it only raises sums, and keeps reservations from being given back",
    "confirm_change": "it is the second person's",
    "count_answers": "it gives nothing back: closing does",
    "decline_change": "it keeps things as they are",
    "decline_grant": "it refuses",
    "erase_text": "no sum and no digest changes",
    "expire_grant": "it spends what was reserved",
    "file_report": "no sum and no rule changes",
    "open_sparse_vector": "it only spends",
    "record_invocations": "it only spends",
    "republish_answer": "it gives nothing back, and charges nothing for what was charged before",
    "resume_publication": "no sum and no rule changes; a contradiction stops publication again",
    "revalue": "it only books more",
    "state_verification": "no sum and no rule changes",
    "stop_publication": "no sum and no rule changes",
    "time_out_grant": "it refuses",
}


def policy(book: Book) -> Command:
    """A larger limit."""
    found, digest = parse_policy(f"policy: p\nrules:\n{WORD.replace('9', '10')}")
    return AdoptPolicy(policy=found.to_json(), source_digest=digest)


def attested(book: Book) -> Command:
    """New members who owe nothing."""
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    ages = {"dimensions": {"age": ["1", "2"]}, "attested_new": True}
    return make("register_population", **people | ages)


def appended(book: Book) -> Command:
    """The same by values alone."""
    return make("append_values", dimension="age", first=1, values=["2"], attested_new=True)


def extended(book: Book) -> Command:
    """The same as a ledger holds it."""
    return make("extend_population", added={"age": ["2"]}, attested_new=True)


def second_use(book: Book) -> Command:
    """The data of another population, which have a budget there."""
    return make("register_dataset", id="e", namespace="n", name="e", also=["other/e"])


def without_parent(book: Book) -> Command:
    """A dataset that was made from another, by its own word, and is not any more."""
    made = {"id": "e", "namespace": "n", "name": "e"}
    book.ask(make("register_dataset", **made, parents=["n/d"]), "admin")
    return make("register_dataset", **made)


def commit_part(book: Book) -> Command:
    """Of two invocations one did not run."""
    grant = grant_in(book.grant(laplace("0.5", 2), by="admin"))
    return make("commit_grant", grant=grant, mechanisms=[laplace("0.5")])


def release(book: Book) -> Command:
    """Nothing ran."""
    return make("release_grant", grant=grant_in(book.grant(laplace("0.5"), by="admin")), reason="x")


def close(book: Book) -> Command:
    """Positives that were not used."""
    session = book.do("open_sparse_vector", "admin", dataset="d", mechanism=sparse_vector())
    return make("close_sparse_vector", grant=grant_in(session))


LOOSENS: dict[str, list[Callable[[Book], Command]]] = {
    "accept_time": [lambda _: make("accept_time", clock="2030-01-01T00:00:00.000000Z", reason="x")],
    "adopt_policy": [policy],
    "append_values": [appended],
    "close_sparse_vector": [close],
    "commit_grant": [commit_part],
    "extend_population": [extended],
    "recover": [lambda _: make("recover", reason="x", lost=[])],
    "register_dataset": [second_use, without_parent],
    "register_population": [attested],
    "release_grant": [release],
}
CASES = [(name, case) for name, cases in LOOSENS.items() for case in cases]
IDS = [f"{name}-{place}" for place, (name, _) in enumerate(CASES)]


def test_every_command_is_named_once() -> None:
    """As one that never loosens, or as one that two people make, which can be proposed."""
    tables: list[dict[str, Any]] = [NEVER, LOOSENS]
    named = [name for table in tables for name in table]
    assert sorted(named) == sorted(COMMANDS)
    assert {name for name, kind in COMMANDS.items() if issubclass(kind, Change)} == set(LOOSENS)


@pytest.mark.parametrize(
    ("name", "case"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)]
)
def test_what_loosens_is_only_proposed(name: str, case: Callable[[Book], Command]) -> None:
    """One admin's command ends in a proposal, and leaves everything else as it was, also where they
    confirm it themselves.
    """
    book = hospital(WORD, {"age": ["1"]})
    book.record(laplace("0.25"))
    command = case(book)
    before = snapshot(book.state)
    [event] = book.ask(command, "admin")
    assert (command.command, event.type) == (name, PROPOSED)
    after = snapshot(book.state)
    for field in ("sequence", "proposals"):
        before.pop(field), after.pop(field)
    assert after == before
    for by in ("admin", "Admin ", "operator:admin"):
        with pytest.raises(Forbidden):
            book.ask(command, "admin", confirmed_by=by)
    assert book.replayed().findings == []


@pytest.mark.parametrize("case", [commit_part, release])
def test_a_batch_is_no_way_around(case: Callable[[Book], Command]) -> None:
    """An item that takes a second person is refused with the batch."""
    book = hospital(WORD)
    command = case(book)
    before = snapshot(book.state)
    with pytest.raises(Forbidden) as found:
        book.batch(command, by="admin")
    assert found.value.code == "approval-needed"
    assert snapshot(book.state) == before
