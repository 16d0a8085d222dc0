"""One person alone loosens nothing, whatever is tried; two do, each in a request of their own."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from support import START, Book, audited, confirming, hospital, laplace, make, proposed, snapshot

from accountant.budget.apply import fold, keep_journal, rollback
from accountant.budget.commands import DAY, KeyMade
from accountant.budget.decide import Repeated, proposing
from accountant.budget.errors import Conflict, Forbidden, NotFound, Problem
from accountant.budget.facts import SECOND, grant_in
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import Event, canonical, rfc3339

ONE = "  - {id: a, limit: {epsilon: 1}}\n"
TWO = "  - {id: a, limit: {epsilon: 2}}\n"
THREE = "  - {id: a, limit: {epsilon: 3}}\n"
WORD = ONE + "  - {id: word, trusted: {epsilon: 0}}\n"
DAYS = DAY * SECOND


def key(role: str = "officer", by: str = "operator", made: int = 0) -> KeyMade:
    """What is known of a key."""
    return KeyMade.model_validate({"role": role, "by": [by], "time": rfc3339(START + made)})


def refused(book: Book, event: Event, by: str, code: str, with_key: KeyMade | None = None) -> None:
    """A confirmation that is refused, and changes nothing."""
    before = snapshot(book.state)
    with pytest.raises(Problem) as found:
        book.ask(confirming(event, with_key), by)
    assert found.value.code == code
    assert snapshot(book.state) == before


def test_a_proposal_changes_nothing_and_a_confirmation_makes_the_change() -> None:
    """The event of the change names the proposal, its digest, both people and the key."""
    book = hospital(ONE)
    in_force = book.state.adopted
    event = proposed(book.policy(TWO), "a is raised or changed")
    assert book.state.adopted is in_force
    assert event.body["expires"] == rfc3339(book.now + 7 * DAYS)
    [adopted] = book.ask(confirming(event, key()), "officer")
    assert (adopted.type, adopted.by) == ("policy.adopted.v1", "officer")
    command = dict(adopted.body["command"])
    assert command.pop("confirms") == {
        "proposal": event.sequence,
        "digest": sha256(book.stored[event.sequence]).hexdigest(),
        "proposer": "admin",
        "key": {"role": "officer", "by": ["operator"], "time": rfc3339(START)},
    }
    assert command == event.body["command"]
    assert book.replayed().findings == []


@pytest.mark.parametrize("name", ["admin", "Admin", "ADMIN", " admin", "admin ", "ａdmin"])
def test_nobody_confirms_an_own_proposal(name: str) -> None:
    """Nor under the same name in other letters."""
    book = hospital(ONE)
    refused(book, proposed(book.policy(TWO)), name, "same-person")


def test_a_key_that_the_proposer_made_lately_is_no_other_person() -> None:
    """Made within seven days before the proposal, or since; an older one is, and another's."""
    book = hospital(ONE)
    event = proposed(book.policy(TWO))
    for made in (0, -7 * DAYS + 1, 3 * DAYS):
        book.now = max(START, START + made)
        refused(book, event, "other", "key-too-new", key("admin", "Admin", made))
    refused(book, event, "other", "key-from-later", key("admin", "admin", 4 * DAYS))
    refused(book, event, "other", "role-not-allowed", key("pipeline"))
    both = KeyMade(role="admin", by=["officer", "admin"], time=rfc3339(START))
    refused(book, event, "other", "key-too-new", both)
    assert book.ask(confirming(event, key("admin", "admin", -7 * DAYS)), "other")


def test_a_proposal_expires() -> None:
    """At its time, to the microsecond; seven days unless the request says another."""
    book = hospital(ONE)
    event = proposed(book.policy(TWO))
    book.now += 7 * DAYS
    refused(book, event, "officer", "proposal-expired")
    command = make("release_grant", grant=grant_in(book.grant(laplace("0.1"))), reason="x")
    assert command.model_copy(update={"proposal_days": 30}).to_json()["proposal_days"] == 30
    again = proposed(book.policy(TWO))
    assert again.sequence > event.sequence
    book.now += 7 * DAYS - 1
    assert book.ask(confirming(again), "officer")
    assert book.replayed().findings == []


def test_a_declined_proposal_stays_declined() -> None:
    """By anybody else, or withdrawn by its proposer; then nobody confirms or declines it."""
    book = hospital(ONE)
    for by in ("officer", "admin"):
        event = proposed(book.policy(TWO))
        declined = book.do("decline_change", by, proposal=event.sequence, reason="too much")
        assert declined.type == "change.declined.v1"
        assert set(declined.body["command"]["reason"]) == {"sealed"}
        refused(book, event, "officer", "proposal-closed")
        with pytest.raises(Conflict, match=f"declined by {by}"):
            book.do("decline_change", "officer", proposal=event.sequence, reason="again")
    assert book.replayed().findings == []


def test_a_confirmation_is_of_one_proposal() -> None:
    """The digest of another one, or of none, confirms nothing."""
    book = hospital(ONE)
    one, other = proposed(book.policy(TWO)), proposed(book.policy(THREE))
    digest = confirming(other).digest
    for number, code in ((one.sequence, "proposal-digest"), (99, "unknown-proposal")):
        with pytest.raises(Problem) as found:
            book.do("confirm_change", "officer", proposal=number, digest=digest)
        assert found.value.code == code
    with pytest.raises(NotFound):
        book.do("confirm_change", "officer", proposal=0, digest=digest)


def test_what_has_changed_meanwhile_is_proposed_anew() -> None:
    """Another policy, or one that no longer loosens: the second person saw something else."""
    book = hospital(ONE)
    one, other = proposed(book.policy(TWO)), proposed(book.policy(THREE))
    book.ask(confirming(other), "officer")
    refused(book, one, "officer", "proposal-outdated")
    assert book.policy(TWO)[0].type == "policy.adopted.v1"  # which is stricter by now


def test_an_old_confirmation_is_good_for_nothing_else() -> None:
    """A retry finds its own event; anybody else, and the same proposal made again, a Conflict."""
    book = hospital(ONE)
    event = proposed(book.policy(TWO))
    [adopted] = book.ask(confirming(event), "officer", "key-1")
    for retry in ("key-1", None):
        found = book.ask(confirming(event), "officer", retry)
        assert found == Repeated(adopted.sequence)
    refused(book, event, "third", "proposal-closed")
    book.policy(ONE)
    again = proposed(book.policy(TWO))
    with pytest.raises(Problem, match="proposal"):
        book.do(
            "confirm_change", "officer", proposal=again.sequence, digest=confirming(event).digest
        )
    with pytest.raises(Problem, match="was used for another request"):
        book.ask(confirming(again), "officer", "key-1")


def test_a_retry_of_a_proposal_is_the_same_proposal() -> None:
    """With an idempotency key or without; a free text makes no other one of it."""
    book = hospital(WORD)
    book.seals = True
    grant = grant_in(book.grant(laplace("0.1")))
    event = proposed(book.do("release_grant", grant=grant, reason="never run"))
    for reason in ("never run", "it did not start"):
        found = book.ask(make("release_grant", grant=grant, reason=reason))
        assert found == Repeated(event.sequence)
    keyed = proposed(book.do("release_grant", key="k", grant=grant, reason="never run"))
    found = book.ask(make("release_grant", grant=grant, reason="never run"), key="k")
    assert found == Repeated(keyed.sequence)


def test_a_grant_stays_open_until_it_is_confirmed() -> None:
    """If its time passes first it is charged, and what was proposed is void."""
    book = hospital(WORD.replace("epsilon: 0}", "epsilon: 0.000001}"))
    grant = grant_in(book.grant(laplace("0.4", 2), ttl_seconds=60))
    event = proposed(book.do("commit_grant", grant=grant, mechanisms=[laplace("0.4")]))
    assert event.body["effect"] == {"back": "0.4", "rules": ["word"]}
    assert grant in book.state.open
    book.now += 61 * SECOND
    refused(book, event, "officer", "proposal-outdated")
    book.do("expire_grant", ":accountant", grant=grant)
    assert book.used("")[0][0] == 800_000_000


LOOSENING: list[tuple[str, dict[str, Any]]] = [
    ("register_dataset", {"id": "c", "namespace": "n", "name": "c", "also": ["other/c"]}),
    ("register_dataset", {"id": "d", "namespace": "n", "name": "d", "owner": "x"}),
    ("register_dataset", {"id": "e", "namespace": "n", "name": "e"}),
    ("release_grant", {"grant": "g6", "reason": "never run"}),
    ("commit_grant", {"grant": "g6", "mechanisms": [laplace("0.1")]}),
    ("close_sparse_vector", {"grant": "g7"}),
]


def every_way() -> Book:
    """A ledger in which each of ``LOOSENING`` takes a second person."""
    book = Book()
    book.register()
    book.do("register_dataset", "pipe", id="d", namespace="n", name="d", owner="us")
    book.do("register_dataset", "pipe", id="e", namespace="n", name="e", parents=["d"])
    book.policy(WORD + "  - {id: ours, owners: us, at_most: {epsilon: 1}}\n")
    book.record(laplace("0.1"))
    book.grant(laplace("0.1", 3))
    session = {"kind": "sparse_vector", "sensitivity": "1", "threshold_scale": "100"}
    session |= {"comparison_scale": "1000", "max_positives": 5}
    book.do("open_sparse_vector", dataset="d", mechanism=session)
    return book


@pytest.mark.parametrize(("kind", "fields"), LOOSENING, ids=[kind for kind, _ in LOOSENING])
def test_one_person_alone_loosens_nothing(kind: str, fields: dict[str, Any]) -> None:
    """Each change waits; alone, nobody makes it by any name or key; another person does."""
    book = every_way()
    before = book.state
    event = proposed(book.do(kind, "pipe", **fields))
    refused(book, event, "pipe", "same-person")
    refused(book, event, "PIPE", "same-person", key())
    refused(book, event, "second", "key-too-new", key("admin", "pipe", 0))
    forged = {**event.body["command"], "confirms": {"proposal": event.sequence}}
    with pytest.raises(ValueError, match="confirms"):
        make(kind, **{name: value for name, value in forged.items() if name != "type"})
    assert before.open.keys() == book.state.open.keys()
    [made] = book.ask(confirming(event, key()), "officer")
    assert made.body["command"]["confirms"]["proposer"] == "pipe"
    assert book.replayed().findings == []


def test_a_batch_carries_no_proposal() -> None:
    """Nothing of it happens, and the problem says to send the item alone."""
    book = every_way()
    before = snapshot(book.state)
    with pytest.raises(Forbidden, match="request of its own") as found:
        book.batch(make("release_grant", grant="g6", reason="never run"))
    assert found.value.code == "approval-needed"
    assert snapshot(book.state) == before


def test_open_proposals_survive_a_snapshot_and_a_rollback() -> None:
    """A state that was read back confirms what one that went on would; what failed never was."""
    book = hospital(ONE)
    event = proposed(book.policy(TWO))
    again = load(book.name, b"".join(dump(book.state)))
    assert again.proposals == book.state.proposals
    assert fold(book.name, map(Event.from_bytes, book.stored)).proposals == again.proposals
    book = hospital(WORD)
    grant = grant_in(book.grant(laplace("0.1")))
    keep_journal(book.state)
    before = snapshot(book.state)
    book.do("release_grant", grant=grant, reason="never run", confirmed_by="officer")
    assert rollback(book.state)
    assert snapshot(book.state) == before
    assert event.sequence not in book.state.proposals


FORGED: list[tuple[str, Any]] = [
    ("proposer", "somebody"),
    ("proposal", 0),
    ("digest", "0" * 64),
    ("key", {"role": "officer", "by": ["admin"], "time": rfc3339(START)}),
    ("key", {"role": "pipeline", "by": ["x"], "time": rfc3339(START)}),
]


@pytest.mark.parametrize(("field", "value"), FORGED)
def test_replay_finds_a_forged_confirmation(field: str, value: Any) -> None:
    """Whatever of it is changed; and so where one name stands for both."""
    book = hospital(ONE)
    book.policy(TWO, confirmed_by="officer")
    event = Event.from_bytes(book.stored[-1])
    command = event.body["command"]
    forged = event.to_json() | {
        "command": command | {"confirms": command["confirms"] | {field: value}}
    }
    for document in (forged, event.to_json() | {"by": "admin"}):
        book.stored[-1] = canonical(document)
        assert book.replayed().findings


def test_replay_finds_a_change_that_nobody_confirmed() -> None:
    """An adoption without its confirmation is one that would only have been proposed."""
    book = hospital(ONE)
    book.policy(TWO, confirmed_by="officer")
    document = Event.from_bytes(book.stored[-1]).to_json()
    del document["command"]["confirms"]
    book.stored[-1] = canonical(document)
    assert "differs" in book.replayed().findings[0].reason


def test_whoever_made_the_proposers_key_lately_does_not_confirm() -> None:
    """One person with two keys, of which either makes the other, is one person either way."""
    book = hospital(WORD)
    grant = grant_in(book.grant(laplace("0.1"), by="new"))
    event = proposed(book.do("release_grant", "new", grant=grant, reason="x"))
    mine = confirming(event, key("admin", "root", -9 * DAYS))
    theirs = key("pipeline", "operator:Boss", -DAYS)
    for by in ("boss", "operator:boss"):
        before = snapshot(book.state)
        with pytest.raises(Forbidden, match="made the key of new") as found:
            book.ask(mine.model_copy(update={"proposed_with": theirs}), by)
        assert found.value.code == "key-too-new"
        assert snapshot(book.state) == before
    [done] = book.ask(mine.model_copy(update={"proposed_with": theirs}), "another")
    assert done.body["command"]["confirms"]["proposed_with"]["role"] == "pipeline"
    assert book.replayed().findings == []
    assert audited(book).findings == []


def test_a_user_of_the_machine_is_who_has_a_key_of_that_name() -> None:
    """Whoever proposes with an own key does not confirm beside the database."""
    book = hospital(ONE)
    event = proposed(book.policy(TWO))
    for by in ("operator:admin", "operator:Admin", "Operator: admin"):
        refused(book, event, by, "same-person")


# -- extensions and recoveries -----------------------------------------------------------------


def extension(**more: Any) -> Any:
    """Values whose members are attested to be new."""
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    ages = {"dimensions": {"age": ["1", "2", "3"]}, "attested_new": True}
    return make("register_population", **people | ages | more)


@pytest.mark.parametrize(
    "command",
    [
        extension(),
        make("append_values", dimension="age", first=1, values=["2", "3"], attested_new=True),
    ],
)
def test_two_people_let_new_members_owe_nothing(command: Any) -> None:
    """The proposal says which values and what was charged; the one event has the command whole."""
    book = hospital(ONE, {"age": ["1"]})
    book.record(laplace("0.5"))
    event = proposed(book.ask(command, "admin"), "2 of age .2 to 3.; .* epsilon 0.5 on all data")
    new = {"added": {"age": ["2", "3"]}, "attested_new": True, "type": "extend_population"}
    assert event.body["command"] == new
    assert event.body["effect"] == {
        "attested": {"age": {"count": 2, "first": "2", "last": "3"}},
        "owed": {"*": "0.5", "d": "0.5"},
    }
    assert len(book.used()) == 1
    refused(book, event, "Admin", "same-person")
    book.record(laplace("0.25"))  # what is charged meanwhile is told, and outdates nothing
    [done] = book.ask(confirming(event), "officer")
    assert (done.type, done.body["added"]) == ("population.extended.v1", {"age": ["2", "3"]})
    assert [cell[0] for cell in book.used()] == [750_000_000, 0, 0]
    assert book.replayed().findings == []
    assert audited(book).findings == []


def test_an_extension_before_any_charge_takes_one_person() -> None:
    """There is nothing to owe; nor is there where the values inherit, or are there already."""
    book = hospital(ONE, {"age": ["1"]})
    [done] = book.ask(extension(), "admin")
    assert done.type == "population.extended.v1"
    book.record(laplace("0.5"))
    assert book.ask(extension(), "admin") == []
    inheriting = extension(dimensions={"age": ["1", "2", "3", "4"]}, attested_new=False)
    [done] = book.ask(inheriting, "admin")
    assert done.type == "population.extended.v1"
    assert [cell[0] for cell in book.used()] == [500_000_000] * 4


def test_an_extension_for_two_people_is_one_event() -> None:
    """It says how much fits; so many values are confirmed and replayed."""
    book = hospital(ONE, {"age": ["1"]})
    book.record(laplace("0.5"))
    values = [f"value {n:>30}" for n in range(2_000)]
    ask = {"dimension": "age", "first": 1, "attested_new": True}
    event = proposed(book.ask(make("append_values", **ask, values=values[:700]), "admin"))
    [done] = book.ask(confirming(event, key(by="x" * 64)), "officer")
    assert len(done.body["added"]["age"]) == 700
    before = snapshot(book.state)
    ask["first"] = 701
    with pytest.raises(Problem, match="append fewer") as found:
        book.ask(make("append_values", **ask, values=values[700:1_900]), "admin")
    assert found.value.code == "event-too-large"
    assert snapshot(book.state) == before
    assert book.replayed().findings == []


def test_an_extension_that_nobody_confirmed_is_a_finding() -> None:
    """Also as the part of a registration that one person made before anything was charged."""
    book = hospital(ONE, {"age": ["1"]})
    extend = make("extend_population", added={"age": ["2"]}, attested_new=True)
    forged = book.ask(extend, "admin")[0].to_json()
    proposed_later = hospital(ONE, {"age": ["1"]})
    proposed_later.record(laplace("0.5"))
    proposed(proposed_later.ask(extend, "admin"))
    proposed_later.stored[-1] = canonical(forged | {"sequence": len(proposed_later.stored) - 1})
    assert "is 'population.extended.v1', should be" in str(proposed_later.replayed().findings)
    assert "not confirmed" in str(audited(proposed_later).findings)


def test_a_recovery_takes_two_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was lost and what counts as charged; as many open proposals as there may be do
    not keep it away.
    """
    monkeypatch.setattr(proposing, "MOST_OPEN", 20)
    book = hospital(ONE)
    book.grant(laplace("0.5"))
    for n in range(20):
        book.policy(f"  - {{id: a, limit: {{epsilon: {n + 2}}}}}\n")
    with pytest.raises(Conflict, match="20 proposals wait for a second person, the most is 20"):
        book.policy("  - {id: a, limit: {epsilon: 99}}\n")
    event = proposed(
        book.ask(make("recover", reason="x", lost=[]), "officer"),
        "its signing key; .*: 1; .*0.5 on d",
    )
    refused(book, event, "Officer", "same-person")
    assert book.state.custody.recoveries == 0
    [done] = book.ask(confirming(event), "other")
    assert (done.type, len(done.body["charged"])) == ("ledger.recovered.v1", 1)
    assert book.replayed().findings == []
    assert audited(book).findings == []
