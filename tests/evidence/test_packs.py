"""Checkpoints in packs of 256: what ``export`` writes of them, and what ``verify`` says of each."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
import pytest
from forger import Forger, members_of, packed, packs_of
from house import House, audit, eventful, reasons, resident
from support import Clock

from accountant.auditing import archive
from accountant.auditing.archive import Packs
from accountant.auditing.findings import Findings
from accountant.ledger import bundle
from accountant.ledger.tiles import WIDTH, pack_entries, unpack_entries
from accountant.store.ledgers import Ledgers, Signed, StoreError

Members = list[tuple[str, bytes]]
pytestmark = pytest.mark.xdist_group("packs")
"""In one worker: what they share takes long to make."""


@pytest.fixture(scope="module")
def signed_often(shared: Callable[..., House]) -> House:
    """A ledger of 300 heads; the key is rotated where one pack ends and the next begins."""
    made = resident(shared("often", Clock()))
    for number in range(300):
        if number == WIDTH:
            made.publisher.rotate("fair", "operator:o")
        made.grant()
        made.sign()
    return made


@pytest.fixture(scope="module")
def home(shared: Callable[..., House]) -> House:
    """A ledger with events of all types."""
    return eventful(shared("packs", Clock()))


def forged(home: House, count: int) -> Members:
    """The ledger with so many checkpoints, of sizes that grow, if slowly."""
    forger = Forger(home)
    size = len(forger.events)
    forger.sizes = [1 + max(forger.sizes[0], at * size // count) for at in range(count)]
    return forger.members()


def with_packs(members: Members, *packs: bytes) -> Members:
    """The bundle with these packs, its manifest made anew; ``checkpoint`` stays."""
    manifest = orjson.loads(members[0][1])
    new = [(bundle.pack_member(number), pack) for number, pack in enumerate(packs)]
    rest = [each for each in members if not each[0].startswith("checkpoints/")]
    files = [*rest[1:4], *new, *(each for each in rest if each[0].startswith("policies/"))]
    manifest["files"] = [
        {"path": name, "sha256": sha256(data).hexdigest(), "size": len(data)}
        for name, data in files
    ]
    text = orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)
    return [("manifest.json", text), *rest[1:4], *new, *rest[4:]]


def notes_of(members: Members) -> list[bytes]:
    """All checkpoints of a bundle."""
    packs = [data for name, data in members if name.startswith("checkpoints/")]
    return [note for pack in packs for note in unpack_entries(pack)]


def found(members: Members) -> list[str]:
    """What is said of a bundle."""
    return reasons(audit(packed(members)))


def test_three_hundred_heads(signed_often: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in two packs, in order and as they were signed, read a pack at a time; every key
    vouches for the next, also across packs; and a part of the ledger has all of them, too.
    """
    pages, read = [], Ledgers.signed

    def counted(ledgers: Ledgers, *given: Any) -> list[Signed]:
        page = read(ledgers, *given)
        pages.append(len(page))
        return page

    monkeypatch.setattr(Ledgers, "signed", counted)
    data = signed_often.bundle()
    assert pages == [256, 44]
    monkeypatch.undo()
    members = members_of(data)
    names = [name for name, _ in members if name.startswith("checkpoint")]
    assert names == ["checkpoint", "checkpoints/000", "checkpoints/001"]
    held = dict(members)
    signed = [each.full for each in signed_often.service.ledgers.signed("fair")]
    assert list(unpack_entries(held["checkpoints/000"])) == signed[:256]
    assert list(unpack_entries(held["checkpoints/001"])) == signed[256:]
    assert held["checkpoint"] == signed[-1]
    verdict = audit(data)
    assert (reasons(verdict), len(verdict.keys)) == ([], 2)
    part = members_of(signed_often.bundle(256))
    assert [each for each in part if each[0] in names] == [m for m in members if m[0] in names]
    assert reasons(audit(packed(part))) == []
    assert found(with_packs(members, held["checkpoints/000"], held["checkpoints/001"])) == []


def test_a_page_of_checkpoints(signed_often: House) -> None:
    """The store gives those from a number on, and before another."""
    ledgers = signed_often.service.ledgers
    everything = ledgers.signed("fair")
    for first, end in ((0, 0), (0, 1), (17, 256), (256, 299), (290, 999), (999, 1_000)):
        assert ledgers.signed("fair", first, end) == everything[first:end]
    assert ledgers.signed("fair", 17) == everything[17:]
    newest = list(signed_often.publisher.log("fair").newest())
    assert newest == everything[::-1]


def test_a_database_with_holes_is_not_exported(
    signed_often: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a checkpoint is missing, there is an error, and no bundle that lacks it."""
    read = Ledgers.signed

    def holed(ledgers: Ledgers, *given: Any) -> list[Signed]:
        return [each for each in read(ledgers, *given) if each.number != 270]

    monkeypatch.setattr(Ledgers, "signed", holed)
    with pytest.raises(StoreError, match="of the checkpoints 256 to 299 not all are there"):
        signed_often.bundle()


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 512, 513])
def test_packs_are_full_but_for_the_last(home: House, count: int) -> None:
    """However many checkpoints there are: a pack for each 256 of them, and one for the rest."""
    members = forged(home, count)
    packs = [(name, data) for name, data in members if name.startswith("checkpoints/")]
    assert [name for name, _ in packs] == [
        *("checkpoints/000", "checkpoints/001", "checkpoints/002")[: -(-count // 256)]
    ]
    held = [len(list(unpack_entries(data))) for _, data in packs]
    assert (sum(held), set(held[:-1]) <= {256}, 0 < held[-1] <= 256) == (count, True, True)
    assert found(members) == []


def test_packs_are_numbered_as_tiles_are() -> None:
    """Groups of three digits; a manifest that spells a pack otherwise is none."""
    spelled = {0: "000", 999: "999", 1_000: "x001/000", 1_234_067: "x001/x234/067"}
    for number, name in spelled.items():
        assert bundle.pack_member(number) == f"checkpoints/{name}"


def test_another_spelling_is_no_pack(home: House) -> None:
    """Neither as a tile of fewer, nor with more digits, nor with a number that leaves a gap."""
    members = forged(home, 300)
    for name in ("checkpoints/001.p/44", "checkpoints/000001", "checkpoints/1", "checkpoints/002"):
        renamed = [(name if n == "checkpoints/001" else n, data) for n, data in members]
        assert f"{name}: it does not belong here" in found(renamed)
        listed = renamed[0][1].replace(b'"checkpoints/001"', f'"{name}"'.encode())
        [finding] = found([("manifest.json", listed), *renamed[1:]])
        assert finding == "manifest.json: its files are not those of a bundle, in order"


def test_packs_of_another_length_are_found(home: House) -> None:
    """A pack that is not full before others, or too full, or empty, or ends within a checkpoint: a
    finding on it, whatever the manifest says, and what is in other packs is checked.
    """
    members = forged(home, 600)
    notes = notes_of(members)
    one, two, three = (pack for _, pack in packs_of(notes))
    assert found(with_packs(members, one, two, three)) == []
    short = (pack_entries(notes[:255]), pack_entries(notes[255:511]), pack_entries(notes[511:]))
    small = "it has 255 checkpoints, though others follow"
    assert found(with_packs(members, *short)) == [f"checkpoints/000: {small}"]
    long = pack_entries(notes[:257])
    none = "a pack has 1 to 256 checkpoints"
    assert found(with_packs(members, long, pack_entries(notes[257:513]), three)) == [
        f"checkpoints/000: {none}"
    ]
    assert found(with_packs(members, one, two, three, b"")) == [
        "checkpoints/002: it has 88 checkpoints, though others follow",
        f"checkpoints/003: {none}",
    ]
    assert f"checkpoints/001: {none}" in found(with_packs(members, one, b"", three))
    assert found(with_packs(members, pack_entries(notes))) == [f"checkpoints/000: {none}"]
    for cut in (two[:-1], two[:1], two + b"\0", two + b"\1\0"):
        assert "checkpoints/001: it ends within an entry" in found(
            with_packs(members, one, cut, three)
        )
    for packs in ((two, one, three), (one, one, three), (one, three, two), (one, two)):
        assert found(with_packs(members, *packs))


def test_a_finding_names_the_checkpoint_by_its_number(home: House) -> None:
    """In whichever pack it is, also after a pack that cannot be unpacked."""
    members = forged(home, 600)
    good = notes_of(members)
    garbage = {17: b"", 255: b"x", 256: b"\n\n\n", 257: bytes(9), 599: b"\xff"}
    notes = [garbage.get(number, note) for number, note in enumerate(good)]
    one, two, three = (pack for _, pack in packs_of(notes))
    named = [f"checkpoint {number}" for number in garbage]
    told = [f.member for f in audit(packed(with_packs(members, one, two, three))).findings]
    assert sorted(told) == sorted(["checkpoint", *named])  # and the last is not `checkpoint` again
    told = [f.member for f in audit(packed(with_packs(members, one, two[:-1], three))).findings]
    assert told.count("checkpoints/001") == 1
    assert set(told) == {"checkpoints/001", "checkpoint", *(named[n] for n in (0, 1, 4))}


def test_a_checkpoint_of_another_history_is_found(home: House) -> None:
    """A checkpoint with another root, however well it is signed, in the second pack, and one that
    nobody has signed.
    """
    forger = Forger(home)
    members = forged(home, 300)
    notes, size = notes_of(members), orjson.loads(members[0][1])["tree"]["size"]
    origin = orjson.loads(members[0][1])["origin"]
    other = list(notes)
    other[299 - 1] = forger.note(origin, [bytes(32)] * size)
    [reason] = found(with_packs(members, *(pack for _, pack in packs_of(other))))
    assert reason == f"checkpoint 298: its root at size {size} is not that of the events"
    other[298] = notes[298].partition(b"\n\n")[0] + b"\n\n"
    [reason] = found(with_packs(members, *(pack for _, pack in packs_of(other))))
    assert reason.startswith("checkpoint 298: ")


def test_any_changed_byte_of_a_pack_is_found(signed_often: House) -> None:
    """With the manifest made anew, all that is left to find it are signatures and the order."""
    members = members_of(signed_often.bundle())
    one, two = (pack for _, pack in packs_of(notes_of(members)))
    assert found(with_packs(members, one, two)) == []
    for at in [*range(0, len(two), 1_009), *range(8), len(two) - 1]:
        changed = bytearray(two)
        changed[at] ^= 1
        assert found(with_packs(members, one, bytes(changed)))


def test_no_pack_takes_memory_or_time(home: House) -> None:
    """A pack of nothing but lengths is one finding; and of all packs one is unpacked at a time."""
    members = forged(home, 300)
    flood = bytes(bundle.MAX_MEMBER)
    verdict = audit(packed(with_packs(members, flood, flood)))
    assert 2 <= verdict.count < 10
    note = base64.b64encode(bytes(40_000))
    large = pack_entries([note] * WIDTH)
    findings = Findings()
    tracemalloc.start()
    packs = Packs(findings, {bundle.pack_member(n): large for n in range(8)}, 8)
    assert sum(held == note for _, held in packs) == 8 * WIDTH
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (findings.count, most < 3 * len(large)) == (0, True)


def test_what_is_not_read_is_a_finding(home: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond what is held in memory are named; nothing passes unchecked."""
    members = forged(home, 600)
    held = dict(members)
    before = sum(
        len(held[name]) for name in ("keys", "checkpoint", "totals.json", "checkpoints/000")
    )
    monkeypatch.setattr(archive, "MAX_FILES", before + len(held["checkpoints/001"]) - 1)
    told = [f.member for f in audit(packed(members)).findings if "not checked" in f.reason]
    assert told[0] == "checkpoints/001"
