"""The ledger as it arrives: checked byte by byte. And the client's own independence."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from support import proven

from accountant.client import Checkpoint, Failed, LedgerBroken, LedgerEvent, Registrar
from accountant.client.ledger import Continuation, Tree, canonical
from accountant.ledger import merkle
from accountant.ledger.checkpoints import Receipt
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import Verifier

if TYPE_CHECKING:
    from conftest import Served

LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "4"}
STRANGE = 'naïve 편향 \U0001f600 "quoted" \\ / \b\f\n\r\t\x01\x1f\x7f\u2028'


def checked(listed: Iterable[Any], kept: Sequence[Checkpoint]) -> Iterator[LedgerEvent]:
    """Listed events that continue what was kept."""
    check = Continuation(kept)
    for item in listed:
        yield check.next(item)
    check.end()


def page(served: Served, population: str) -> list[dict[str, Any]]:
    """The events as the service sends them."""
    answer = httpx2.get(
        f"{served.url}/v1/populations/{population}/events",
        headers={"Authorization": f"Bearer {served.keys['auditor']}"},
    )
    return list(answer.json()["events"])


def test_bytes(served: Served) -> None:
    """The client has every event's canonical bytes exactly, whatever characters are in them."""
    population = served.population()
    with served.client(population) as accountant:
        accountant.record("visits", [LAPLACE], purpose="test")
    with Registrar(served.url, served.keys["admin"], population) as registrar:
        registrar.dataset("strange", namespace=population, name=STRANGE)
    with served.client(population, "auditor") as auditor:
        events = list(auditor.events())
        assert events[-1].content["command"]["name"] == STRANGE
        for sequence, event in enumerate(events):
            assert event.data == auditor.event(sequence)
            assert event.leaf == leaf_hash(event.data)


def test_pages(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger longer than a page arrives whole and in order."""
    population = served.population()
    with served.client(population) as accountant:
        for _ in range(5):
            accountant.record("visits", [LAPLACE], purpose="test")
    monkeypatch.setattr("accountant.client.calls.PAGE", 3)
    with served.client(population, "auditor") as auditor:
        assert [event.content["sequence"] for event in auditor.events()] == list(range(9))


def test_the_tree_is_the_services(served: Served) -> None:
    """The client's few lines and the ledger room agree on the root of every size."""
    tree, theirs = Tree(), merkle.Tree()
    assert tree.root == theirs.root
    for number in range(300):
        data = b"%d" % number
        leaf = tree.add(data)
        theirs, _ = theirs.grown([leaf])
        assert (leaf, tree.size, tree.root) == (leaf_hash(data), theirs.size, theirs.root)


@pytest.mark.parametrize("change", ["value", "leaf", "gone", "swapped"])
def test_tampering(served: Served, change: str) -> None:
    """A changed, missing or moved event is noticed by its hash or its number."""
    events = copy.deepcopy(page(served, served.population()))
    assert len(list(checked(events, []))) == 4
    match change:
        case "value":
            events[1]["event"]["command"]["name"] = "other"
        case "leaf":
            events[1]["leaf"] = events[0]["leaf"]
        case "gone":
            del events[1]
        case _:
            events[0], events[1] = events[1], events[0]
    with pytest.raises(LedgerBroken):
        list(checked(events, []))


def test_a_rewritten_ledger_is_not_that_of_its_checkpoint(served: Served) -> None:
    """Events that were rewritten together with their hashes, or cut off, contradict a checkpoint
    that the client fetched, or had kept.
    """
    population = served.population()
    served.publisher.publish(population)
    with served.client(population, "auditor") as auditor:
        kept = auditor.checkpoint()
        assert (kept.origin, kept.size) == (f"localhost/{population}", 5)
        assert kept.note == served.publisher.published(population).full
    events = page(served, population)
    assert len(list(checked(events, [kept]))) == 5
    with pytest.raises(LedgerBroken, match="fewer than its checkpoint of 5"):
        list(checked(events[:4], [kept]))
    forged = copy.deepcopy(events)
    forged[1]["event"]["command"]["name"] = "other"
    forged[1]["leaf"] = leaf_hash(canonical(forged[1]["event"])).hex()
    with pytest.raises(LedgerBroken, match="first 5 events"):
        list(checked(forged, [kept]))


def test_a_ledger_grows_beyond_its_checkpoints(served: Served) -> None:
    """Reading checks the checkpoint that is published and all that were kept."""
    population = served.population()
    served.publisher.publish(population)
    with served.client(population, "auditor") as auditor, served.client(population) as pipeline:
        first = auditor.checkpoint()
        pipeline.record("visits", [LAPLACE], purpose="test")
        served.publisher.publish(population)
        pipeline.record("visits", [LAPLACE], purpose="test")
        second = auditor.checkpoint()
        assert [event.type for event in auditor.events(first)][-1] == "invocation.recorded.v1"
        assert (first.size, second.size) == (5, 6)
        other = dataclasses.replace(first, root=bytes(32))
        with pytest.raises(LedgerBroken, match="first 5 events"):
            list(auditor.events(other))
        with pytest.raises(LedgerBroken):
            Checkpoint.from_note(b"no checkpoint")


def test_receipts(served: Served) -> None:
    """A pipeline keeps proof of its own reservations and settlements, and nobody else's."""
    population = served.population()
    with served.client(population) as pipeline:
        with pipeline.grant("visits", [LAPLACE], purpose="test") as grant:
            receipt = grant.receipt()
        sequence = grant.answer["sequence"]
        found = Receipt.from_bytes(receipt)
        assert found.index == sequence
        keys = [Verifier.from_text(text) for text in keys_of(served, population)]
        entry = pipeline.event(sequence)
        head = proven(receipt, entry, keys)
        assert (head.origin, head.size > sequence) == (f"localhost/{population}", True)
        assert Receipt.from_bytes(pipeline.receipt(sequence)).proof == found.proof
        with pytest.raises(Failed, match="not-your-grant"):
            pipeline.receipt(0)
        with pytest.raises(Failed, match="role-not-allowed"):
            pipeline.checkpoint()
    with served.client(population, "other") as other, pytest.raises(Failed, match="not-your-grant"):
        other.receipt(sequence)
    with served.client(population, "auditor") as auditor:
        assert auditor.receipt(0)


def keys_of(served: Served, population: str) -> list[str]:
    """The ledger's verifier keys, as its events have them."""
    events = page(served, population)
    kind = "signing_key.adopted.v1"
    return [e["event"]["command"]["key"] for e in events if e["event"]["type"] == kind]


def test_stands_alone() -> None:
    """The client imports nothing else of the project, and of third parties only httpx2's."""
    script = (
        "import sys; bare = set(sys.modules); import httpx2; theirs = set(sys.modules)\n"
        "import accountant.client; ours = set(sys.modules) - theirs\n"
        "top = {m.partition('.')[0] for m in ours} - set(sys.stdlib_module_names)\n"
        "inside = {m for m in ours if m.startswith('accountant.')}\n"
        "assert top == {'accountant'}, top\n"
        "assert all(m.startswith('accountant.client') for m in inside), inside\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_second_use_and_a_join(served: Served) -> None:
    """The client registers the same data for another population with a second person's key, names
    what data were made from, and asks about several datasets at once.
    """
    first, second = served.population(), served.population()
    with Registrar(served.url, served.keys["admin"], second) as registrar:
        same = {"namespace": first, "name": "VISITS"}
        with pytest.raises(Failed) as refused:
            registrar.dataset("again", **same)
        assert refused.value.code == "dataset-known-elsewhere"
        also = [f"{first}/visits"]
        proposed = registrar.dataset("again", **same, also=also)
        assert proposed["effect"] == {"also": also}
        served.confirm(second, proposed)
        made = registrar.dataset("again", **same)
        assert (made["also"], made["confirmed_by"]) == (also, "officer")
        registrar.dataset("sums", namespace=second, name="sums", parents=["visits"])
    with served.client(second) as accountant:
        grant = accountant.grant(["sums", "again"], [LAPLACE], purpose="x")
        grant.release("never run")
        preview = accountant.preview(["again", "sums"], [LAPLACE], purpose="x")
        assert preview.body["charged_to"] == ["again", "sums", "visits"]


def test_what_is_given_back_may_need_a_second_person(served: Served) -> None:
    """Where a policy bounds what is taken on one client's word, a release beyond that is proposed:
    the grant stays open until another person confirms. So is a commit in part.
    """
    population = served.population()
    with Registrar(served.url, served.keys["admin"], population) as registrar:
        rules = ("{id: lifetime, limit: {epsilon: 1}}", "{id: word, trusted: {epsilon: 0}}")
        served.confirm(population, registrar.policy(f"policy: t\nrules: [{', '.join(rules)}]\n"))
    with served.client(population) as accountant:
        grant = accountant.grant("visits", [LAPLACE], purpose="x")
        proposed = grant.release("never run")
        assert (proposed.id, proposed.state, proposed.charged) == (grant.id, "proposed", {})
        assert accountant.grant_state(grant.id).state == "reserved"
        served.confirm(population, proposed.body)
        assert accountant.grant_state(grant.id).state == "released"
        grant = accountant.grant("visits", [LAPLACE, LAPLACE], purpose="x")
        assert grant.commit([LAPLACE]).proposal
