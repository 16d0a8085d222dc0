"""The verifier for auditors: what it proves, and that nothing of that can be changed unseen."""

from __future__ import annotations

import ast
import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import bundles
import pytest
from bundles import Log, Signer, archive, canonical, charge, checkpoint, root_of, small
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from effort import examples
from forger import Forger, members_of, packed
from house import House, audit, eventful
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SECOND, Book, Clock, audited, laplace, make, sums_agree

from accountant import verify_minimal
from accountant.auditing.totals import totals_of
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.budget.population.packing import packed as packed_names
from accountant.budget.reading import TYPES
from accountant.privacy.conversions import most_mu_squared
from accountant.verify_minimal import MOST_FINDINGS, ORDER, grow, point, signed, verifies
from accountant.verify_minimal import root_of as grown

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "ledger"
SOURCE = Path(verify_minimal.__file__)
SMALL = small()
BUNDLE = SMALL.bundle()


def golden(name: str) -> Any:
    """Test vectors of others; each file names its source."""
    return json.loads((GOLDEN / f"{name}.json").read_text())


def report(bundle: bytes, key: str | None = None) -> dict[str, Any]:
    """What the verifier says of a bundle, which must be JSON."""
    found = verify_minimal.verify(io.BytesIO(bundle), key)
    assert json.loads(json.dumps(found)) == found
    return found


def account(rule: str, dataset: str, used: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    """An account as the totals have it."""
    return {"rule": rule, "epoch": epoch, "dataset": dataset, "client": "", "used": used}


def used_of(found: dict[str, Any], dataset: str = "d") -> dict[str, Any]:
    """What the most charged cell of a dataset has used in its lifetime."""
    [used] = [
        one["used"] for one in found["totals"] if (one["rule"], one["dataset"]) == ("", dataset)
    ]
    return used


def reasons(bundle: bytes, key: str | None = None) -> list[tuple[Any, str]]:
    """Where something is wrong, and what."""
    return [(each["where"], each["reason"]) for each in report(bundle, key)["findings"]]


def test_an_auditor_can_read_it() -> None:
    """It is one file, of at most 1,400 lines, and needs only the standard library."""
    source = SOURCE.read_text()
    assert source.count("\n") <= 1_400
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


RFC8032 = [  # section 7.1, tests 2 and SHA(abc)
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f1"
        "1d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3fe"
        "ebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431"
        "e0303dca179c138ac17ad9bef1177331a704",
    ),
]


@pytest.mark.parametrize("vector", RFC8032, ids=["2", "sha"])
def test_the_vectors_of_rfc_8032(vector: tuple[str, str, str]) -> None:
    """A signature is good, not with any of its bits changed, and has one spelling: 64 bytes, and S
    below the group's order (RFC 8032, section 5.1.7).
    """
    key, text, good = map(bytes.fromhex, vector)
    assert verifies(key, text, good)
    for bit in range(0, 512, 37):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        assert not verifies(key, text, bytes(bad))
    s = int.from_bytes(good[32:], "little") + ORDER
    for other in (good[:32] + s.to_bytes(32, "little"), good + b"\0", good[:63]):
        assert not verifies(key, text, other)
    assert not verifies(key, text + b"x", good)


def test_a_public_key_has_one_spelling() -> None:
    """Points are decoded as RFC 8032, section 5.1.3, says, without leniency."""
    for y in (2**255 - 19 + 1, 2**255 + 1, 2):
        with pytest.raises(ValueError, match="no Ed25519 key"):
            point(y.to_bytes(32, "little"))
    with pytest.raises(ValueError, match="no Ed25519 key"):
        point(bytes([1] + [0] * 30))


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.integers(0, 511))
def test_another_implementation_agrees(seed: bytes, message: bytes, bit: int) -> None:
    """What ``cryptography`` signs is good, and with a bit changed it is bad to both."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signature = private.sign(message)
    assert verifies(public, message, signature)
    for place, value in enumerate((public, message + b"x", signature)):
        changed = bytearray(value)
        changed[bit // 8 % len(value)] ^= 1 << bit % 8
        three = [public, message, signature]
        three[place] = bytes(changed)
        key, text, bad = three
        with pytest.raises(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(key).verify(bad, text)
        with suppress(ValueError):
            assert not verifies(key, text, bad)


def test_the_reference_tree() -> None:
    """The roots of transparency-dev's tree at every size, and those of a thousand entries."""
    reference, tree = golden("rfc6962_reference_tree"), list[tuple[int, bytes]]()
    roots = [base64.b64decode(grown(tree)).hex()]
    for entry in reference["leaf_inputs"]:
        grow(tree, bytes.fromhex(entry))
        roots.append(base64.b64decode(grown(tree)).hex())
    assert roots == reference["root_by_tree_size"]
    tree, leaves = [], list[bytes]()
    for number in range(1000):
        grow(tree, str(number).encode())
        leaves.append(bundles.leaf_of(str(number).encode()))
    assert base64.b64decode(grown(tree)) == root_of(leaves)


LENIENT = {
    "101 signatures",
    "duplicate configured verifier used",
    "unexpected line in signature block",
}
NOTES = [each for each in golden("signed_note_sumdb")["open_cases"] if "note" in each]
NOTES = [each for each in NOTES if each["desc"] not in LENIENT]


@pytest.mark.parametrize("case", NOTES, ids=[case["desc"] for case in NOTES])
def test_signed_notes_of_others(case: dict[str, Any]) -> None:
    """Notes of Go's test cases are signed by whom Go says, but that lines by nobody known are not
    looked at (LENIENT).
    """
    good = [key.split("+")[0] for key in case["vkeys"] if signed(case["note"], key)]
    assert good == case.get("verified", [])
    for bad in golden("signed_note_sumdb")["vkeys_bad"]:
        with suppress(ValueError):
            assert not signed(case["note"], bad)


def test_a_sound_bundle_has_no_finding() -> None:
    """What is as the format says is found to be so, with its sums."""
    assert report(BUNDLE, SMALL.keys[0].text) == {
        "ledger": "hospital",
        "events": 10,
        "root": base64.b64encode(root_of(SMALL.leaves())).decode(),
        "findings": [],
        "believed": [],
        "uncharged": {},
        "totals": [
            account("", "*", charge(407, 1)),
            account("", "d", charge(407, 1)),
            account("a", "d", charge(407, 1), epoch=1) | {"spent": "407"},
        ],
    }


def test_a_key_that_the_log_does_not_follow_from_is_a_finding() -> None:
    """Who knows a key is not satisfied with another log, nor with one that goes on under another
    name, nor with one that only says that it adopted the key.
    """
    [(where, reason)] = reasons(BUNDLE, Signer(seed=9).text)
    assert (where, reason) == ("checkpoint", "the key that was given is not one of this log")
    assert reasons(bundles.full().bundle(), SMALL.keys[0].text) == [(where, reason)]
    for name in ("example.org/hospital", "example.org/other"):
        log = Log(origin=name)
        log.adopt(SMALL.keys[0])
        log.adopt(Signer("example.org/other", 7))
        log.adopt(Signer(name, 8))
        log.sign(*log.keys[1:])
        assert reasons(log.bundle(), SMALL.keys[0].text)


def test_a_part_is_one_finding() -> None:
    """A bundle without all events is left to ``accountant verify``."""
    members = SMALL.members()
    manifest = json.loads(members["manifest.json"])
    for part in ({"first": 0, "count": 8}, {"first": 256, "count": 9}):
        members["manifest.json"] = canonical(manifest | {"entries": part})
        [(_, reason)] = reasons(archive(members.items()))
        assert reason.startswith("a part")


def test_what_changes_neither_tree_nor_signatures_is_found() -> None:
    """Another manifest, a longer length of the last entry, a checkpoint too many, and stray bits
    in the base64 of a signature, are findings though all hashes and signatures stay right.
    """
    members = SMALL.members()
    manifest = json.loads(members["manifest.json"])
    tree = manifest["tree"] | {"root": base64.b64encode(bytes(32)).decode()}
    for change in ({"origin": "x"}, {"ledger": "x"}, {"tree": tree}):
        other = {"manifest.json": canonical(manifest | change)}
        assert reasons(archive((members | other).items()))
    name, last = list(members)[-1], SMALL.entries[-1]
    content = members[name][: -len(last) - 2] + (len(last) + 1).to_bytes(2, "big") + last
    assert reasons(archive((members | {name: content}).items()))
    head, note = members["checkpoint"], SMALL.checkpoints[0].encode()
    stray = note[:-3] + bytes([note[-3] + 1]) + note[-2:]
    assert base64.b64decode(stray.split(b" ")[2]) == base64.b64decode(note.split(b" ")[2])
    for notes in ([stray, head], [note, head, note]):
        assert reasons(archive((members | {"checkpoints/000": bundles.packed(notes)}).items()))


def test_checkpoints_in_packs() -> None:
    """More than 256 are taken in their order, from one pack after the other. A pack that ends
    within a checkpoint is a finding, and those in other packs are checked.
    """
    log = Log().begin()
    for _ in range(300):
        log.record(charge(1, 1))
        log.sign()
    members = log.members()
    assert [name for name in members if name.startswith("checkpoints/")] == [
        *("checkpoints/000", "checkpoints/001")
    ]
    assert reasons(archive(members.items())) == []
    one, two = members["checkpoints/000"], members["checkpoints/001"]
    for first, second in ((two, one), (one, b""), (b"", two[:-1]), (one, one)):
        other = members | {"checkpoints/000": first, "checkpoints/001": second}
        assert reasons(archive(other.items()))
    found = reasons(archive((members | {"checkpoints/000": one[:-1]}).items()))
    assert found == [("checkpoints/000", "ends too early")]
    log.checkpoints[270] = checkpoint(log.origin, 274, bytes(32), log.keys)
    both = log.members() | {"checkpoints/000": one[:-1]}
    found = reasons(archive(both.items()))
    assert [where for where, _ in found] == ["checkpoints/000", "checkpoint at 274"]


@settings(max_examples=examples(200))
@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    """Whatever byte of an entry, a checkpoint or a key is changed, there is a finding."""
    members = SMALL.members()
    name = data.draw(st.sampled_from([name for name in members if name != "manifest.json"]))
    content = bytearray(members[name])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    assert reasons(archive((members | {name: bytes(content)}).items()))


END = BUNDLE.index(SMALL.entries[-1]) + len(SMALL.entries[-1])


@settings(max_examples=examples(100))
@given(st.integers(0, END - 1))
def test_a_bundle_that_is_cut_short_is_found(length: int) -> None:
    """An archive that ends before its entries do is a finding."""
    assert reasons(BUNDLE[:length])


def test_entry_bundles_are_needed_once_in_their_place() -> None:
    """A member that is dropped is a finding, and so is an entry bundle here twice or elsewhere."""
    log = bundles.long()
    members = list(log.members().items())
    found = report(log.bundle())
    assert (found["findings"], used_of(found)["delta"]) == ([], "597")
    *others, one, two, three = members
    for entries in ([two, three], [one, three], [one, two], [one, one, two, three]):
        assert reasons(archive([*others, *entries]))
    for entries in ([one, two, two, three], [two, one, three], [one, three, two]):
        assert reasons(archive([*others, *entries]))
    for name in ("manifest.json", "keys", "checkpoint", "checkpoints/"):
        assert reasons(archive([each for each in members if not each[0].startswith(name)])), name


VALUES: list[Any] = [None, True, -1, 10**30, 0.5, "", "x", [], [[]], {}, {"a": 1}, "9" * 99]
GARBAGE = [b"", b"null", b"{}", b"[]", b"[" * 60_000, b"9" * 60_000, b"1e999", b"NaN", b"\n\n"]


@settings(max_examples=examples(200))
@given(st.data())
def test_hostile_members_never_crash_it(data: st.DataObject) -> None:
    """Whatever stands in a member instead of what should: a finding, no traceback."""
    members = SMALL.members()
    name = data.draw(st.sampled_from(list(members)))
    garbage = data.draw(st.one_of(st.binary(max_size=600), st.sampled_from(GARBAGE)))
    assert reasons(archive((members | {name: garbage}).items()))
    assert reasons(garbage)


@settings(max_examples=examples(150))
@given(st.data(), st.sampled_from(VALUES))
def test_hostile_events_never_crash_it(data: st.DataObject, new: Any) -> None:
    """An event may say anything, signed as it is: the verifier judges it and goes on."""
    log = bundles.full()
    at = data.draw(st.integers(0, len(log.entries) - 1))
    log.entries[at] = canonical(bundles.replaced(json.loads(log.entries[at]), data, new))
    log.checkpoints.clear()
    log.sign()
    assert report(log.bundle())["events"] == len(log.entries)


def test_every_type_of_event_is_understood() -> None:
    """A ledger with all of them has no finding, and the most that a cell can have."""
    found = report(bundles.full().bundle())
    assert (found["findings"], used_of(found)) == ([], charge(900, 114))
    log = bundles.full()
    log.settle("g5", 1)  # which the recovery has charged as a whole
    log.checkpoints.pop()
    log.sign()
    assert (len(log.entries) - 1, "KeyError('g5')") in reasons(log.bundle())


@pytest.mark.parametrize(("attested", "had", "most"), [(False, 166, 1116), (True, 100, 1050)])
def test_what_new_cells_have(attested: bool, had: int, most: int) -> None:
    """New cells inherit the largest sum beside them, or have what open grants hold; and what such a
    grant gives back is given back there too.
    """
    sexes = ["f", "m", "n", "o", "p"]
    log = Log().begin(sex=sexes, age=["17", "22"])
    for number, sex in enumerate(sexes):
        log.record(charge(15 * number), 0, 0, [0, number], subjects={"sex": [sex]})
    log.record(charge(5), 60, 0, [0, 4], subjects={"age": {"from": "17", "to": "17"}})
    log.record(charge(1), 65, 0, [0, 4], subjects=[{"sex": ["f"]}, {}])
    grant = log.grant(100, 66, 0, [0, 4], subjects={"age": ["17"]})
    command, added = {"attested_new": attested}, {"sex": ["x"]}
    if attested:
        owed = dict.fromkeys("*d", "0.000000166")
        log.confirmed("population.extended", command, owed, added=added)
    else:
        log.event("population.extended", command, added=added)
    log.record(charge(1000), had, 0, [0, 5], subjects={"sex": ["x"]})
    log.settle(grant, 50)
    log.sign()
    found = report(log.bundle())
    assert (found["findings"], used_of(found)) == ([], charge(most))


@pytest.mark.parametrize("owed", [{"*": "0.000000001", "d": "0.000000002"}, {}, {"*": "infinite"}])
def test_what_a_second_person_is_told_is_what_was_charged(owed: dict[str, str]) -> None:
    """A proposal to forget it, or to recover, that says another sum is a finding; so is an event
    that does either, and that nobody confirmed.
    """
    changes: list[tuple[str, Any, Any]] = [
        ("population.extended", {"attested_new": True}, {"added": {"sex": ["x"]}}),
        ("ledger.recovered", {"type": "recover"}, {}),
    ]
    for kind, command, more in changes:
        log = Log().begin(sex=["f", "m"])
        log.record(charge(1))
        log.confirmed(kind, command, owed, **more)
        log.sign()
        [(where, reason)] = reasons(log.bundle())
        assert (where, "charged is {'*': '0.000000001'" in reason) == (5, True)
        alone = Log().begin(sex=["f", "m"])
        alone.record(charge(1))
        alone.event(kind, command, **more)
        alone.sign()
        assert reasons(alone.bundle()) == [(5, "not confirmed")]


def epochs(**changed: Any) -> dict[str, Any]:
    """What an adopting event says of rule a."""
    return {"epochs": {"a": bundles.EPOCH | changed}}


def seen(epsilon: int, cell: list[int]) -> dict[str, Any]:
    """What a judged event says of rule a."""
    return {"rules": {"a": {"used": [str(epsilon), "0"], "cell": cell}}}


INFINITE = [charge(100) | {"infinite": {"epsilon": 1}}]
MANY = {name: [str(n) for n in range(1001)] for name in "ab"}
FIRED = {"fired": [["a", "budget-exceeded"]]}
WRONG: dict[str, tuple[int, dict[str, Any], str]] = {
    "another ledger": (5, {"ledger": "other"}, "not the next of this ledger"),
    "a gap": (5, {"sequence": 6}, "not the next of this ledger"),
    "text": (5, {"sequence": "5"}, "not the next of this ledger"),
    "a truth": (1, {"sequence": True}, "not the next of this ledger"),
    "time goes back": (5, {"time": "2026-11-01T00:00:01.000000Z"}, "earlier than"),
    "time without micros": (9, {"time": "2026-11-02T00:00:00Z"}, "earlier than"),
    "too low a total": (5, {"total": charge(99)}, "total in epsilon is not the sum"),
    "no total": (5, {"total": ...}, "KeyError('total')"),
    "infinite left out": (5, {"charges": INFINITE}, "total in epsilon is not the sum"),
    "a charge with a sign": (5, {"total": charge(0) | {"epsilon": "-100"}}, "not all are amounts"),
    "minus infinity": (5, {"total": charge(0) | {"infinite": {"epsilon": -1}}}, "not all are"),
    "past 2^62": (8, {"total": charge(2**62)}, "the charge does not fit on"),
    "an unknown grant": (6, {"command": {"grant": "g77"}}, "KeyError('g77')"),
    "more than reserved": (6, {"charge": charge(501)}, "not the epsilon it reserved"),
    "too late": (6, {"time": "2026-11-01T01:00:04.000000Z"}, "settled too late"),
    "too early": (6, {"type": "grant.expired.v1"}, "expired too early"),
    "less was used": (5, seen(499, [0, 0]), "the cell had [500, 0]"),
    "another cell": (5, seen(0, [1, 1]), "another cell has spent 500"),
    "a cell of others": (4, seen(0, [0, 1]), "the cell is not selected"),
    "nothing compared": (5, {"rules": {}}, "KeyError('a')"),
    "fired for nothing": (5, FIRED, "the charge does not fit on 0"),
    "refused for nothing": (5, {"type": "grant.refused.v1"}, "the outcome, by []"),
    "an overrun of nothing": (8, {"overrun": True}, "overrun, by []"),
    "no policy": (5, {"policy": ...}, "another policy is in force"),
    "a roomier limit": (3, epochs(capacity="1"), "the capacity of a should be None"),
    "orders of a sum": (3, epochs(renyi=["10"]), "orders go with a delta'"),
    "another epoch": (3, epochs(number=2), "the epoch of a is not 1"),
    "another beginning": (3, epochs(start="empty"), "a does not begin so"),
    "one person": (3, {"by": "PIPE"}, "only one person"),
    "another proposal": (2, {"effect": {"first": "x"}}, "another one was read"),
    "nobody confirmed it": (3, {"command": {"policy": {"rules": [bundles.RULE]}}}, "not confirmed"),
    "an unknown dimension": (5, {"command": {"dataset": "d", "subjects": {"x": []}}}, "KeyError"),
    "an unknown value": (5, {"command": {"dataset": "d", "subjects": {"sex": "x"}}}, "not in list"),
    "too many cells": (0, {"command": {"dimensions": MANY}}, "too many cells"),
    "no event": (4, {"type": ...}, "KeyError('type')"),
}


@pytest.mark.parametrize(("at", "change", "reason"), WRONG.values(), ids=WRONG)
def test_what_a_signed_event_says_wrongly(at: int, change: dict[str, Any], reason: str) -> None:
    """A signature does not make it true: form, order and sums are checked all the same."""
    found = reasons(bundles.event_at(at, **change).bundle())
    assert any(reason in text for _, text in found), found


@pytest.mark.parametrize("spelling", [b'{"a":1, "by"', b'{"z":1,"by"', b'{"a":"\\u0041","by"'])
def test_other_spellings_are_no_canonical_json(spelling: bytes) -> None:
    """An entry is the canonical form of what it says, to the byte."""
    log = small()
    log.entries[4] = log.entries[4].replace(b'{"by"', spelling)
    found = reasons(bundles.signed_anew((4, [0]), (10, [0, 1]), log=log).bundle())
    assert found == [(4, "not canonical JSON (RFC 8785)")]


def test_floods_are_a_limited_number_of_findings() -> None:
    """However much is wrong, and whatever sizes are promised, it costs no memory."""
    members = SMALL.members()
    flood = members | {"tile/entries/000.p/9": bytes(100_000)}
    assert len(reasons(archive(flood.items()))) == MOST_FINDINGS
    huge = bytearray(BUNDLE)
    huge[124:135] = b"7" * 11
    assert reasons(bytes(huge))


@pytest.mark.parametrize(
    ("checkpoints", "wrong"),
    [
        ([(3, [0]), (7, [0]), (8, [0, 1]), (10, [1])], set()),
        ([(10, [0, 1])], set()),
        ([(4, [0]), (4, [0]), (10, [1, 0])], set()),
        ([(4, [0]), (10, [1])], {"checkpoint at 10"}),
        ([(4, [0]), (10, [0])], {"checkpoint at 10"}),
        ([(4, [1]), (10, [0, 1])], {"checkpoint at 4"}),
        ([(1, [0]), (10, [0, 1])], {"checkpoint at 1"}),
        ([(9, [0, 1]), (8, [1]), (10, [1])], {"checkpoint"}),
        ([(4, [0]), (9, [0, 1])], {"checkpoint"}),
    ],
)
def test_the_key_in_force_signs(checkpoints: list[Any], wrong: set[str]) -> None:
    """The last key adopted below the size signs, and the one before it hands over to it."""
    assert {where for where, _ in reasons(bundles.signed_anew(*checkpoints).bundle())} == wrong


def test_every_key_hands_over_to_the_next() -> None:
    """Where several keys were adopted since the last checkpoint, none of them can be left out."""
    for left in range(3):
        log = bundles.signed_anew((3, [0]))
        log.adopt(Signer(seed=3))
        log.sign(*log.keys)
        assert reasons(log.bundle()) == []
        log.checkpoints.pop()
        log.sign(*(key for key in log.keys if key != log.keys[left]))
        assert len(reasons(log.bundle())) == 1


def test_what_a_checkpoint_says_and_who_says_it() -> None:
    """Another root or name is a finding, however well signed, and so is a bad signature in the
    log's own name; cosignatures of witnesses may stand there.
    """
    for name, root in ((SMALL.origin, bytes(32)), ("x", root_of(SMALL.leaves()[:4]))):
        log = small()
        log.checkpoints[0] = checkpoint(name, 4, root, log.keys[:1])
        [(where, reason)] = reasons(log.bundle())
        assert (where, reason[:16]) == ("checkpoint at 4", "not the root of ")
    log = small()
    log.checkpoints[1] += Signer("witness.example", 8).line("anything")
    assert reasons(log.bundle()) == []
    log.checkpoints[1] += log.keys[1].line("another\n1\ntext\n")
    assert [where for where, _ in reasons(log.bundle())] == ["checkpoint at 10"]


def test_a_log_needs_a_key_that_is_one() -> None:
    """Without a key nothing is signed, nor by one whose text has another key's hash."""
    log = Log(origin="")
    log.event("population.registered")
    log.checkpoints = [checkpoint("", 1, root_of(log.leaves()), [])]
    assert [where for where, _ in reasons(log.bundle())] == ["checkpoint at 1"]
    log, key = Log(), Signer()
    key.text, key.id = key.text.replace(key.id.hex(), "00000000"), bytes(4)
    log.adopt(key)
    log.sign()
    assert reasons(log.bundle()) == [("checkpoint at 1", "not an Ed25519 verifier key")]


@settings(max_examples=examples(150))
@given(st.lists(bundles.STEPS, max_size=25), st.sampled_from(["public", "private"]))
def test_sums_are_those_of_the_service(steps: list[Any], membership: str) -> None:
    """In every cell of every account, in each currency, what is added up from the bytes alone is
    what the service has; every decision is found to be right; and the totals are the same.
    """
    book, people = Book(), {"age": ["17", "22"], "sex": ["f", "m"]}
    book.register(people, membership=membership)
    book.dataset("d")
    book.policy(bundles.POLICIES[0])
    for step in steps:
        with suppress(Problem):  # which leaves no event
            bundles.take(book, people, membership, *step)
    sums_agree(book)


@pytest.mark.parametrize("ending", ["committed", "expired", "recovered"])
def test_a_revaluation_stays_if_its_grant_may_run_on(ending: str) -> None:
    """It reaches those who are there, and those who join later if nobody knows that it has ended:
    so for the service, and for whoever reads the events alone.
    """
    book, ages = Book(), ["17"]
    book.register({"age": ages})
    book.dataset("d")
    book.policy(
        "  - {id: a, limit: {epsilon: 1000}}\n  - {id: w, window: 1h, limit: {epsilon: 9}}\n"
    )
    grant = f"g{book.grant(laplace('0.5'), ttl_seconds=60).sequence}"
    book.now += 60 * SECOND * (ending == "expired")
    if ending == "recovered":
        book.do("recover", "operator:o", reason="lost", lost=[])
    else:
        who, kind = {"committed": ("pipe", "commit"), "expired": (SYSTEM, "expire")}[ending]
        book.do(f"{kind}_grant", who, grant=grant)
    facts = {"by": "pipe", "dataset": "d", "mechanisms": [laplace("0.5")], "reason": "too little"}
    booked = {"epsilon": "300000000", "delta": "0"}
    asked = make("revalue", event=int(grant[1:]), booked=booked, **facts)
    [more] = book.ask(asked, "operator:o")
    units = int(more.body["more"]["epsilon"])
    book.register({"age": [*ages, "22"]}, attested_new=True)
    audit, lasts = audited(book), ending != "committed"
    assert audit.findings == []
    for rule in ("a", "w"):
        key, there = book.key(rule), [(500_000_000 + units) * each for each in (1, lasts)]
        assert [cell[0] for cell in book.used(rule)] == there
        assert [audit.account(tuple(key)).at((at,))[0] for at in (0, 1)] == there


def test_batches_wide_groups_and_long_dimensions_are_added_up() -> None:
    """Items of a batch count like any event; sets of positions are the cells that they spell, by
    bits or by gaps; a dimension may come in parts.
    """
    weeks = [f"week-{number:05d}" for number in range(8_000)]
    book = Book()
    book.register({"week": weeks, "sex": ["f", "m"]}, fixed={"week": "of joining"})
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1000}}\n")
    asked = []
    for names in (weeks[::2], weeks[1::9], [weeks[4], *weeks[7_000::2]]):
        fields = {"dataset": "d", "mechanisms": [laplace("0.25")], "subjects": {"week": names}}
        asked.append(packed_names(book.state.people(), make("ask_grant", **fields)))
    codes = {code for one in asked for code in one.to_json()["subjects"]["week"]}
    assert codes == {"bits", "gaps"}
    header, *items = book.batch(*asked)
    assert header.type == "batch.opened.v1"
    book.batch(make("release_grant", grant=grant_in(items[0]), reason="x"))
    [refused] = book.batch(make("ask_grant", dataset="d", mechanisms=[laplace("9999")]))
    assert refused.type == "batch.refused.v1"
    audit = audited(book)
    assert audit.findings == []
    audit.add_up()
    assert canonical({"accounts": audit.totals}) == totals_of(book.state)


def findings_of(book: Book, change: Callable[[dict[str, Any]], Any] | None = None) -> list[str]:
    """What the verifier finds where the last event of a ledger is changed."""
    last = json.loads(book.stored[-1])
    if change:
        change(last)
    book.stored = [*book.stored[:-1], canonical(last)]
    return [each["reason"] for each in audited(book).findings]


def adopted(*policies: str, used: bool = False) -> Book:
    """A ledger of a limit rule a that was adopted with these limits, one after the other; ``used``:
    something was booked under the first.
    """
    book = Book()
    book.register({"sex": ["f", "m"]})
    book.dataset("d")
    for policy in policies:
        book.policy(f"  - {{id: a, {policy}}}\n", confirmed_by="officer")
        if used and policy is policies[0]:
            book.record(laplace("0.001"))
    return book


DECIMALS = st.integers(1, 999)
LIMITS = st.builds(
    "limit: {{epsilon: {}e{}, delta: {}e-{}{}}}, gate: {}".format,
    DECIMALS,
    st.integers(-9, 3),
    DECIMALS,
    st.integers(3, 20),
    st.sampled_from(["", ", own_delta: 0", ", own_delta: 1e-20"]),
    st.sampled_from(["advanced", "zcdp", "renyi", "gdp", "renyi, orders: [10]"])
    | st.lists(st.sampled_from(["1.25", "2", "7.5", "10", "64"]), min_size=1, unique=True).map(
        lambda orders: f"renyi, orders: [{', '.join(orders)}]"
    ),
)


@settings(max_examples=examples(80))
@given(st.lists(LIMITS, min_size=1, max_size=3), st.booleans())
def test_orders_and_capacities_of_the_service_are_right(policies: list[str], used: bool) -> None:
    """Whatever a limit is, and however it is changed, its order leaves the most room, and under
    gdp its capacity is where the curve of Gaussian noise meets it.
    """
    with suppress(Problem):  # a policy that was in force already leaves no event
        book = adopted(*policies, used=used)
        assert findings_of(book) == []


TOLD = "limit: {epsilon: 1, delta: 1e-6}, gate: "
WORKLOAD = "workload: [{kind: gaussian, sensitivity: 1, scale: 20}]"
CURRENCIES = {"zcdp": "rho", "gdp": "mu_squared", "advanced": "epsilon_squared"}


@pytest.mark.parametrize("share", ["0.9", "0.9999", "1.0001", "1.1"])
@pytest.mark.parametrize("gate", CURRENCIES)
def test_another_order_is_found(gate: str, share: str) -> None:
    """A line that is drawn at an order that leaves less room is a finding."""

    def change(event: dict[str, Any]) -> None:
        orders = event["epochs"]["a"]["orders"]
        orders[CURRENCIES[gate]] = str(Fraction(orders[CURRENCIES[gate]]) * Fraction(share))

    found = findings_of(adopted(TOLD + gate), change)
    assert [f"leaves more room in {CURRENCIES[gate]}" in reason for reason in found] == [True]


@pytest.mark.parametrize("order", ["2", "22", "24", "43/2", "1"])
def test_another_renyi_order_is_found(order: str) -> None:
    """The first Renyi order is the candidate that leaves the most room, whatever gate its rule has;
    the second one follows from it.
    """

    def change(old: str, event: dict[str, Any]) -> None:
        orders = event["epochs"]["a"]["renyi"]
        orders[orders.index(old)] = order

    for gate in ("renyi", "zcdp"):
        [reason] = findings_of(adopted(TOLD + gate), partial(change, "23"))
        assert "leaves more room in tau_" in reason or reason == "an order is more than 1"
        [reason] = findings_of(adopted(TOLD + gate), partial(change, "15"))
        assert reason == "the second order should be 15"


@pytest.mark.parametrize("orders", [["23"], ["23", "15", "10"], []])
def test_more_or_fewer_renyi_orders_are_found(orders: list[str]) -> None:
    """The lines at two orders share delta', seven to three: nobody drops one or adds a third."""

    def change(event: dict[str, Any]) -> None:
        event["epochs"]["a"]["renyi"] = orders

    [reason] = findings_of(adopted(TOLD + "renyi"), change)
    assert reason in ("the second order should be 15", "orders go with a delta'")


@pytest.mark.parametrize("lines", ["orders: [12, 8]", WORKLOAD])
@pytest.mark.parametrize("orders", [["12"], ["8", "12"], ["12", "9"]])
def test_other_orders_than_a_rule_states_are_found(lines: str, orders: list[str]) -> None:
    """They are the rule's, in its order; for a workload there is one."""

    def change(event: dict[str, Any]) -> None:
        event["epochs"]["a"]["renyi"] = orders

    book = adopted(TOLD + f"renyi, {lines}")
    if lines == WORKLOAD and len(orders) == 1:  # which one is best takes the prices of its work
        assert findings_of(book, change) == []
    else:
        [reason] = findings_of(book, change)
        assert reason in ("the rule states other orders", "a workload has one order")


@pytest.mark.parametrize("more", [-(10**9), -1, 1, 10**9, 10**40])
def test_another_gdp_capacity_is_found(more: int) -> None:
    """To the unit: the delta of Gaussian noise at the capacity is within delta', and no further."""

    def change(event: dict[str, Any]) -> None:
        event["epochs"]["a"]["capacity"] = str(int(event["epochs"]["a"]["capacity"]) + more)

    [reason] = findings_of(adopted(TOLD + "gdp"), change)
    assert "units has the delta" in reason


@pytest.mark.parametrize(
    ("limit", "delta"), [("1", "0.000001"), ("0.001", "0.5"), ("300", "1e-18"), ("9", "0.899")]
)
def test_gaussian_deltas_are_those_of_the_engine(limit: str, delta: str) -> None:
    """Two evaluations of one curve, at its largest mu^2 and one unit beyond."""
    epsilon, most = Fraction(limit), Fraction(delta)
    units = int(most_mu_squared(epsilon, most) * 10**15)
    with localcontext(verify_minimal.EXACT):
        within = verify_minimal.gaussian_delta(units, epsilon)
        assert within <= Decimal(delta) < verify_minimal.gaussian_delta(units + 1, epsilon)


@pytest.mark.parametrize("gate", ["zcdp", "gdp", "renyi", "advanced"])
@pytest.mark.parametrize("raised", ["limit: {epsilon: 2, delta: 1e-6}", 'datasets: "*"'])
def test_an_epoch_that_goes_on_keeps_its_order(gate: str, raised: str) -> None:
    """Whether it is kept or carried, it says the order, and the limit that was chosen first, as
    they were.
    """
    raised = raised if "limit" in raised else "action: flag, limit: {epsilon: 1, delta: 1e-6}"

    def other_order(event: dict[str, Any]) -> None:
        epoch = event["epochs"]["a"]
        if gate == "renyi":
            epoch["renyi"][0] = "30"
        else:
            [(currency, order)] = epoch["orders"].items()
            epoch["orders"][currency] = str(Fraction(order) + 1)

    def other_choice(event: dict[str, Any]) -> None:
        event["epochs"]["a"]["chosen"] = ["3", "9/10000000"]

    def book() -> Book:
        return adopted(TOLD + gate, f"{raised}, gate: {gate}", used=True)

    assert findings_of(book()) == []
    for change, reason in ((other_order, "another order"), (other_choice, "chosen first")):
        found = findings_of(book(), change)
        assert [reason in each for each in found] == [True], found


def refused(*before: str) -> Book:
    """A ledger with two open grants of epsilon 1, g4 and g5, and a batch that was refused under a
    limit of 3, behind items that settle some of these or ask for more.
    """
    book = adopted("limit: {epsilon: 3}}\n  - {id: half, of: a, at: 50%")
    grants = [book.grant(laplace("0.5", 2), subjects={"sex": ["f"]}) for _ in range(2)]
    assert [grant_in(one) for one in grants] == ["g4", "g5"]
    items = {
        "release": make("release_grant", grant="g4", reason="x"),
        "part": make("commit_grant", grant="g5", mechanisms=[laplace("0.5")]),
        "all": make("commit_grant", grant="g5"),
        "ask": make("ask_grant", dataset="d", mechanisms=[laplace("0.25")]),
    }
    last = make("ask_grant", dataset="d", mechanisms=[laplace("9")])
    behind = make("ask_grant", dataset="d", mechanisms=[laplace("0.125")])
    [event] = book.batch(*(items[name] for name in before), last, behind)
    assert event.type == "batch.refused.v1"
    return book


BEFORE = [(), ("release",), ("all",), ("release", "part"), ("ask",), ("ask", "release", "ask")]


def at_a(**changed: Any) -> Callable[[dict[str, Any]], None]:
    """A change of what an event says of rule a."""
    return lambda event: event["rules"]["a"].update(changed)


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "other items": (lambda e: e["items"].reverse(), "not the items of the batch"),
    "an item less": (lambda e: e["items"].pop(), "not the items of the batch"),
    "another place": (lambda e: e.update(item=len(e["items"])), "not the items of the batch"),
    "before the first": (lambda e: e.update(item=-1), "not the items of the batch"),
    "another kind": (lambda e: e["command"].update(kind="invocations"), "not the items"),
    "nothing fired": (lambda e: e.pop("fired"), "rule a: "),
    "half of it fired": (lambda e: e["fired"].pop(), "rule half: "),
    "it is only flagged": (lambda e: e["fired"].pop(0), "rule a: "),
    "it fits": (lambda e: e["total"].update(epsilon="1"), "rule a: "),
    "less room": (at_a(capacity=["1000000000", "0"]), "rule a: the capacity is"),
    "another policy": (lambda e: e.update(policy=1), "another policy is in force"),
    "a sum below all": (at_a(used=["-1", "0"]), "rule a: the cell had"),
    "a cell of nobody": (at_a(cell=[7]), "no such cell"),
}


@pytest.mark.parametrize(("change", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_a_refused_batch_says_wrongly(
    change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    """Its items are what was asked for, and the integers refuse the one that it names."""
    for before in BEFORE:
        assert findings_of(refused(*before)) == []
        found = findings_of(refused(*before), change)
        assert [reason in each for each in found] == [True], (before, found)


@pytest.mark.parametrize(
    ("before", "least", "most"),
    [((), 2, 2), (("release",), 1, 2), (("all",), 1, 2), (("release", "part"), 0, 2)],
)
def test_sums_before_a_refused_item(before: tuple[str, ...], least: int, most: int) -> None:
    """What it is compared with lies between what stands without the grants that items before it
    settle, and with them; where nothing is before it, it is what was added up.
    """
    for epsilon, sound in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
        for step in (0, 1 if epsilon == most + 1 else -1):
            units = epsilon * 10**9 + (0 if sound else step)
            seen = {"used": [str(units), "0"], "cell": [0]}

            def change(event: dict[str, Any], seen: dict[str, Any] = seen) -> None:
                for rule in ("a", "half"):
                    event["rules"][rule].update(seen)

            assert (findings_of(refused(*before), change) == []) == sound, (epsilon, step)


@pytest.fixture(scope="module")
def home(shared: Callable[..., House]) -> House:
    """A ledger of the service with events of all types."""
    return eventful(shared(clock=Clock()))


def sides(bundle: bytes, key: str) -> tuple[Any, Any]:
    """What the minimal verifier says of a bundle, and what `accountant verify` does."""
    verdict, found = audit(bundle, key=key), report(bundle, key)
    assert verdict.state is not None
    root = base64.b64decode(found["root"]).hex()
    totals, due = canonical({"accounts": found["totals"]}), totals_of(verdict.state)
    return (
        (found["findings"], found["ledger"], found["events"], root, totals),
        (verdict.findings, verdict.ledger, verdict.events, verdict.root, due),
    )


def test_ledgers_of_the_service_are_sound(home: House) -> None:
    """A ledger with rotated keys, with its texts or without, is sound to both verifiers, with the
    same totals; the golden bundle (test_golden_bundle) was recovered, too.
    """
    for texts in (True, False):
        bundle = home.bundle(texts=texts)
        minimal, whole = sides(bundle, audit(bundle).keys[0])
        assert minimal == whole
        assert minimal[0] == []


def lowered(charge: dict[str, Any], currency: str) -> None:
    """Takes one unit off a charge."""
    charge[currency] = str(int(charge[currency]) - 1)


FORGERIES: dict[str, Callable[[Forger], Any]] = {
    "epsilon": lambda f: lowered(f.events[f.of("grant.reserved.v1")]["total"], "epsilon"),
    "another currency": lambda f: lowered(f.events[f.of("grant.reserved.v1")]["total"], "rho"),
    "infinite": lambda f: f.events[f.of("invocation.recorded.v1", 1)]["total"].pop("infinite"),
    "earlier": lambda f: f.events[9].update(time="2020-01-01T00:00:00.000000Z"),
    "other ledger": lambda f: f.events[9].update(ledger="other"),
    "removed": lambda f: f.events.pop(9),
    "repeated": lambda f: f.events.insert(9, f.events[9]),
    "moved": lambda f: f.events.insert(9, f.events.pop()),
    "unfinished rotation": lambda f: f.signers.pop(),
}


def test_a_type_that_is_not_known_is_a_finding(house: Callable[..., House]) -> None:
    """A verifier does not pass over what a later version may have booked."""
    forger = Forger(eventful(house(clock=Clock())))
    forger.events[-1]["type"] = "budget.given.v1"
    told = "budget.given.v1 is a type that this verifier does not know: take a newer one"
    place = forger.events[-1]["sequence"]
    assert (place, told) in reasons(forger.bundle())
    assert audit(forger.bundle()).count


def test_it_knows_every_type() -> None:
    """What the service writes is known to it."""
    known = verify_minimal
    parts = known.HANDLERS, known.JUDGED, known.WAITED, known.APART, known.BATCHED
    assert {name for part in parts for name in part} == TYPES


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_forgeries_are_found_by_both(home: House, forgery: Callable[[Forger], Any]) -> None:
    """What is wrong with the sums, the order or the signatures of a ledger that is hashed and
    signed anew, both verifiers find.
    """
    forger = Forger(home)
    assert report(forger.bundle())["findings"] == []
    forgery(forger)
    assert audit(forger.bundle()).count
    assert report(forger.bundle())["findings"]


def test_changed_bytes_are_found_by_both(home: House) -> None:
    """A changed byte of an entry, a checkpoint or the keys is a finding of both verifiers."""
    members = dict(members_of(home.bundle()))
    for name in [n for n in members if n.startswith(("tile/entries/", "checkpoint", "keys"))]:
        for at in range(7, len(members[name]), len(members[name]) // 4):
            changed = bytearray(members[name])
            changed[at] ^= 1
            bundle = packed(list((members | {name: bytes(changed)}).items()))
            assert audit(bundle).count, (name, at)
            assert report(bundle)["findings"], (name, at)


def run(path: Path, *arguments: str) -> Any:
    """Runs the file alone, as an auditor does, with a Python that has nothing installed."""
    command = [sys.executable, "-I", "-S", str(SOURCE), str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(tmp_path: Path) -> None:
    """It needs nothing but Python, and its exit code says whether anything is wrong, or misused."""
    path = tmp_path / "bundle.tar"
    missing = run(path)
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)
    path.write_bytes(BUNDLE)
    good = run(path, "--key", SMALL.keys[0].text)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("no findings\nledger: hospital\n")
    assert run(path, "--nonsense").returncode == 2
    path.write_bytes(BUNDLE[:4000])
    bad = run(path, "--json")
    assert (bad.returncode, bad.stderr) == (1, "")
    assert json.loads(bad.stdout)["findings"]
    path.write_bytes(b"")
    assert run(path).returncode == 1
