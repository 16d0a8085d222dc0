"""Insiders who hold every key: what they sign is compared with what the events lead to."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
import pytest
from forger import Forger
from house import ORIGIN, House, audit, eventful, reasons
from support import Clock

from accountant.budget.commands import DAY
from accountant.budget.facts import SECOND
from accountant.ledger.events import canonical, microseconds, rfc3339
from accountant.ledger.notes import Signer


@pytest.fixture(scope="module")
def home(shared: Callable[..., House]) -> House:
    """A ledger with events of all types."""
    return eventful(shared(clock=Clock()))


@pytest.fixture
def forger(home: House) -> Forger:
    """Somebody who has the house's keys."""
    return Forger(home)


def lowered(charge: dict[str, Any]) -> None:
    """Takes one unit off every sum of a charge."""
    for currency, amount in charge.items():
        if currency != "infinite" and amount != "0":
            charge[currency] = str(int(amount) - 1)


def charge_and_total(events: list[dict[str, Any]], at: int) -> None:
    """Lowers what was charged and, to match, the total."""
    lowered(events[at]["charges"][0])
    lowered(events[at]["total"])


def only_total(events: list[dict[str, Any]], at: int) -> None:
    """Lowers the total only."""
    lowered(events[at]["total"])


def settled(events: list[dict[str, Any]], at: int) -> None:
    """Lowers what a grant counts in the end."""
    lowered(events[at]["charge"])


def finite(events: list[dict[str, Any]], at: int) -> None:
    """Says that an infinite charge was nothing."""
    events[at]["total"].pop("infinite")


def admitted(events: list[dict[str, Any]], at: int) -> None:
    """Says that no rule had anything against what was refused."""
    del events[at]["fired"]


def reserved(events: list[dict[str, Any]], at: int) -> None:
    """Turns a refusal into a grant."""
    events[at]["type"] = "grant.reserved.v1"


def compared(events: list[dict[str, Any]], at: int) -> None:
    """Says that less had been used when it was decided."""
    events[at]["rules"]["a"]["used"][0] = "0"


def roomier(events: list[dict[str, Any]], at: int) -> None:
    """Says that a limit has room for more than its policy says."""
    capacity = events[at]["rules"]["a"]["capacity"]
    capacity[0] = str(int(capacity[0]) + 1)


def other_orders(events: list[dict[str, Any]], at: int) -> None:
    """Says that the accounts of a limit without a delta keep a Renyi divergence."""
    events[at]["epochs"]["a"]["renyi"] = ["10"]


def fewer_values(events: list[dict[str, Any]], at: int) -> None:
    """Says that a population was extended by something else than was asked."""
    events[at]["added"] = {"age": ["27", "32"]}


def looser(events: list[dict[str, Any]], at: int) -> None:
    """Raises a limit that nobody confirmed."""
    del events[at]["command"]["confirms"]


def earlier(events: list[dict[str, Any]], at: int) -> None:
    """Stamps an event before the one it follows."""
    events[at]["time"] = "2020-01-01T00:00:00.000000Z"


def other_subjects(events: list[dict[str, Any]], at: int) -> None:
    """Says that a charge was to fewer people, and leaves what it says of them."""
    events[at]["command"]["subjects"] = {"sex": ["m"], "age": ["22"]}


def other_ledger(events: list[dict[str, Any]], at: int) -> None:
    """Says that an event is another ledger's."""
    events[at]["ledger"] = "other"


CHANGES = [
    (charge_and_total, "grant.reserved.v1", 1),
    (charge_and_total, "invocation.recorded.v1", 0),
    (only_total, "grant.reserved.v1", 0),
    (only_total, "grant.reserved.v1", 1),
    (only_total, "grant.reserved.v1", 3),
    (only_total, "invocation.recorded.v1", 0),
    (compared, "grant.reserved.v1", 2),
    (compared, "invocation.recorded.v1", 0),
    (roomier, "grant.refused.v1", 0),
    (other_orders, "policy.adopted.v1", 0),
    (finite, "invocation.recorded.v1", 1),
    (settled, "grant.committed.v1", 0),
    (settled, "grant.expired.v1", 0),
    (settled, "sparse_vector.closed.v1", 0),
    (admitted, "grant.refused.v1", 0),
    (reserved, "grant.refused.v1", 0),
    (fewer_values, "population.extended.v1", 0),
    (looser, "policy.adopted.v1", 1),
    (earlier, "grant.reserved.v1", 2),
    (other_subjects, "grant.reserved.v1", 0),
    (other_ledger, "grant.reserved.v1", 0),
]


def test_what_is_not_forged_has_no_finding(forger: Forger) -> None:
    """A ledger that is only taken apart and signed anew is sound: what follows finds forgeries."""
    verdict = audit(forger.bundle())
    assert reasons(verdict) == []
    assert verdict.decided


@pytest.mark.parametrize(
    ("change", "kind", "nth"), CHANGES, ids=[f"{c.__name__}-{k}-{n}" for c, k, n in CHANGES]
)
def test_a_changed_event_is_found(
    forger: Forger, change: Callable[..., None], kind: str, nth: int
) -> None:
    """Whatever of an event is changed so that less is spent or more is allowed, the first finding
    of the verification is at its sequence, although every hash and signature fits.
    """
    at = forger.of(kind, nth)
    change(forger.events, at)
    verdict = audit(forger.bundle())
    found = [f.sequence for f in verdict.findings if f.sequence is not None]
    assert found
    assert min(found) <= at if change is other_subjects else found[0] == at
    assert verdict.count == len(verdict.findings)


@pytest.mark.parametrize("kind", ["grant.reserved.v1", "grant.committed.v1", "grant.expired.v1"])
@pytest.mark.parametrize("renumbered", [True, False], ids=["renumbered", "left numbered"])
def test_a_removed_event_is_found(forger: Forger, kind: str, *, renumbered: bool) -> None:
    """An event that is left out is found where what hangs on it comes next."""
    at = forger.of(kind)
    del forger.events[at]
    if renumbered:
        forger.renumbered()
    verdict = audit(forger.bundle())
    assert any(f.sequence is not None and f.sequence >= at for f in verdict.findings)


def test_an_inserted_event_is_found(forger: Forger) -> None:
    """After a release that nobody asked for, the commit of the same grant is found."""
    at = forger.of("grant.committed.v1")
    release = dict(forger.events[forger.of("grant.released.v1")])
    release["command"] = release["command"] | {"grant": forger.events[at]["command"]["grant"]}
    release["time"] = forger.events[at]["time"]
    forger.events.insert(at, release)
    forger.renumbered()
    verdict = audit(forger.bundle())
    assert at + 1 in [f.sequence for f in verdict.findings]


def test_a_repeated_event_is_found(forger: Forger) -> None:
    """An answer that is recorded twice, with the same idempotency key, is found."""
    at = forger.of("invocation.recorded.v1")
    forger.events.insert(at + 1, dict(forger.events[at]))
    forger.renumbered()
    found = [f.sequence for f in audit(forger.bundle()).findings]
    assert at + 1 in found


def test_moved_events_are_found(forger: Forger) -> None:
    """Two events that change places are found, renumbered or not."""
    at = forger.of("grant.committed.v1")
    forger.events[at - 1], forger.events[at] = forger.events[at], forger.events[at - 1]
    assert audit(forger.bundle()).count
    forger.renumbered()
    assert audit(forger.bundle()).count


TEXTS = [
    (b"because of it", b"because of me"),
    (b'"field":"justification"', b'"field":"purpose"'),
    (b'"field":"justification"', b'"field":"JUSTIFICATION"'),
    (b'{"field":"justification"', b'{ "field":"justification"'),
    (b'{"field":"justification"', b'\n{"field":"justification"'),
    (b'because of it"}', b'because of it","x":1}'),
    (b"because of it", b"because of \\u0069t"),
]


@pytest.mark.parametrize(("before", "after"), TEXTS)
def test_another_text_is_found(forger: Forger, before: bytes, after: bytes) -> None:
    """A text beside the events that is not what was sealed, or is spelled otherwise, is found."""
    data = forger._members["texts/000"]
    assert data.count(before) == 1
    forger._members["texts/000"] = data.replace(before, after)
    assert audit(forger.bundle()).count


def test_a_salt_has_one_spelling(forger: Forger) -> None:
    """A salt in capitals, or with spaces between its bytes, is found: no byte may change."""
    sound = forger._members["texts/000"]
    first = sound.split(b"\n")[0]
    salt = orjson.loads(first)["salt"].encode()
    for other in (salt.upper(), salt[:2] + b" " + salt[2:], salt[:-2], salt + b"00"):
        forger._members["texts/000"] = sound.replace(salt, other)
        assert audit(forger.bundle()).count


def test_a_missing_text_is_found(forger: Forger) -> None:
    """Each text that is left out, though nobody erased it, is one finding at its event."""
    lines = forger._members["texts/000"].split(b"\n")[:-1]
    assert len(lines) == 6
    for left, line in enumerate(lines):
        others = [one + b"\n" for n, one in enumerate(lines) if n != left]
        forger._members["texts/000"] = b"".join(others)
        [finding] = audit(forger.bundle()).findings
        assert finding.sequence == orjson.loads(line)["sequence"]
        assert "is missing, though it was not erased" in finding.reason


def test_an_unfinished_rotation_is_found(forger: Forger) -> None:
    """A key that the one before it has not vouched for is found, even if all later checkpoints are
    signed with it.
    """
    keys = [event["command"]["key"] for event in forger.events if "key" in event["command"]]
    old = [signer for signer in forger.signers if str(signer.verifier) == keys[0]]
    forger.signers = [signer for signer in forger.signers if signer not in old]
    verdict = audit(forger.bundle())
    assert any("lacks the signature" in reason for reason in reasons(verdict))


def strangers(forger: Forger, *, recovered: bool) -> bytes:
    """The ledger of somebody who has no key of the house: he adopts its key in his own events, and
    then his own, as the same log or as a recovered one.
    """
    name = f"{ORIGIN}/fair/2" if recovered else f"{ORIGIN}/fair"
    mine = Signer.new(name)
    real = forger.of("signing_key.adopted.v1")
    adoption = dict(forger.events[real])
    adoption["command"] = adoption["command"] | {"key": str(mine.verifier)}
    command = {"type": "recover", "lost": [], "reason": "   "}
    effect = {"recovers": ["its signing key"], "open": 0, "owed": {}}
    proposal = adoption | {"type": "change.proposed.v1", "command": command, "effect": effect}
    proposal["expires"] = rfc3339(microseconds(proposal["time"]) + 7 * DAY * SECOND)
    recovery = adoption | {
        "type": "ledger.recovered.v1",
        "by": "his other name",
        "command": dict(command),
        "charged": [],
        "lost": [],
    }
    forger.events[real + 1 :] = [proposal, recovery, adoption] if recovered else [adoption]
    forger.renumbered()
    if recovered:
        number, proposer = proposal["sequence"], proposal["by"]
        digest = sha256(canonical(proposal)).hexdigest()
        confirms = {"proposal": number, "digest": digest, "proposer": proposer}
        recovery["command"]["confirms"] = confirms
    forger.signers, forger.sizes = [mine], [len(forger.events)]
    manifest = orjson.loads(forger._members["manifest.json"]) | {"origin": name, "texts": False}
    forger._members = {"manifest.json": canonical(manifest)}
    return forger.bundle()


@pytest.mark.parametrize("recovered", [True, False], ids=["recovered", "rotated"])
def test_a_strangers_ledger_is_not_the_key_owners(forger: Forger, *, recovered: bool) -> None:
    """Whoever adopts a public key that is not his, and then his own, does not get his ledger
    accepted as that key's.
    """
    keys = [e["command"]["key"] for e in forger.events if e["type"] == "signing_key.adopted.v1"]
    data = strangers(forger, recovered=recovered)
    assert audit(data, key=keys[0]).count


def test_it_is_the_recovery_that_the_key_does_not_reach_over(forger: Forger) -> None:
    """The same ledger without a key in hand is only consistent with itself: that is no finding."""
    assert reasons(audit(strangers(forger, recovered=True))) == []


def test_every_key_of_the_chain_vouches(home: House) -> None:
    """Whichever key of the ledger an auditor was given, the first or the last, it is accepted; any
    other one, or what is none, is a finding.
    """
    data = home.bundle()
    keys = audit(data).keys
    for key in keys:
        assert reasons(audit(data, key=key)) == []
    stranger = str(Signer.new(f"{ORIGIN}/fair").verifier)
    for wrong in (stranger, "", "nonsense", keys[0][:-1], keys[0] + "x"):
        assert audit(data, key=wrong).count == 1
