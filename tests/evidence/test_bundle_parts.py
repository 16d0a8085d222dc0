"""Bundles of a part of a ledger, several in a row, and what somebody kept from before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from forger import members_of, packed
from house import ORIGIN, ROOMS, House, adopt, audit, eventful, many, reasons, resident
from support import Clock

from accountant.budget.errors import Invalid
from accountant.ledger.notes import Signer
from accountant.ledger.tiles import unpack_entries


@pytest.fixture(scope="module")
def home(shared: Callable[..., House]) -> House:
    """A ledger of some 800 events in four entry bundles; keys and policies change in the third, and
    a text of the first is erased there.
    """
    made = resident(shared(clock=Clock()))
    made.grant(purpose="a purpose of the first part")
    made.grant(purpose="another purpose")
    made.sign()
    many(made, 290)
    made.sign()
    many(made, 250)
    made.publisher.rotate("fair", "operator:o")
    made.sign()
    adopt(made, ROOMS.replace("100", "200"), confirmed_by="officer")
    made.service.erase("fair", "officer", 4, None, "asked for")
    many(made, 250)
    made.sign()
    assert 768 < made.head().size < 1_024
    return made


def names_of(data: bytes) -> list[str]:
    """The names of the members."""
    return [name for name, _ in members_of(data)]


@pytest.mark.parametrize(
    ("first", "last", "held"),
    [
        (0, 0, ["000"]),
        (0, 255, ["000"]),
        (255, 256, ["000", "001"]),
        (256, 256, ["001"]),
        (300, 600, ["001", "002"]),
        (700, None, ["002", "003.p/{rest}"]),
        (768, 768, ["003.p/{rest}"]),
    ],
)
def test_a_part_has_whole_entry_bundles(
    home: House, first: int, last: int | None, held: list[str]
) -> None:
    """--from and --to name events; the part has the entry bundles that hold them, and everything
    else as the whole has it. By itself it has no finding.
    """
    whole, part = members_of(home.bundle()), members_of(home.bundle(first, last))
    entries = [f"tile/entries/{name.format(rest=home.head().size - 768)}" for name in held]
    assert [name for name, _ in part if name.startswith("tile/entries/")] == entries
    texts = {entry.replace("tile/entries", "texts").partition(".")[0] for entry in entries}
    wanted = [
        (name, data)
        for name, data in whole[1:]
        if not name.startswith(("tile/entries/", "texts/")) or name in entries or name in texts
    ]
    assert part[1:] == wanted
    verdict = audit(home.bundle(first, last))
    assert reasons(verdict) == []
    assert verdict.decided == (first < 256)


@pytest.mark.parametrize(("first", "last"), [(900, None), (0, 900), (5, 4), (1_000, 1_001)])
def test_there_are_no_such_events(home: House, first: int, last: int | None) -> None:
    """What is not there cannot be exported."""
    with pytest.raises(Invalid, match="the ledger has events 0 to"):
        home.bundle(first, last)


def test_parts_in_a_row_are_the_whole(home: House) -> None:
    """Parts that continue each other lead to the same state as the whole, whatever happened in
    which: keys, policies, erasures.
    """
    whole = audit(home.bundle())
    for cuts in ([256], [512], [256, 512, 768]):
        ends = [*cuts, home.head().size]
        parts = [home.bundle(a, b - 1) for a, b in zip([0, *cuts], ends, strict=True)]
        verdict = audit(*parts)
        assert reasons(verdict) == []
        assert verdict.decided
        assert (verdict.root, verdict.events, verdict.keys) == (
            *(whole.root, whole.events, whole.keys),
        )
        assert verdict.state is not None
        assert whole.state is not None
        assert verdict.state.accounts.keys() == whole.state.accounts.keys()


def test_parts_of_a_growing_ledger(house: Callable[..., House]) -> None:
    """Parts that were exported at different times continue each other, with a rotation, and an
    erasure of what the first still shows, in between.
    """
    made = resident(house(clock=Clock()))
    erased = made.grant(purpose="stays not")
    many(made, 300)
    first = made.bundle(0, 255)
    early = made.bundle()
    made.publisher.rotate("fair", "operator:o")
    made.publisher.rotate("fair", "operator:o")
    made.sign()
    many(made, 300)
    made.service.erase("fair", "officer", erased.sequence, None, "asked for")
    second = made.bundle(256)
    assert reasons(audit(first, second)) == []
    assert reasons(audit(early)) == []
    keys = audit(first, second).keys
    assert len(keys) == 3
    for key in keys:
        assert reasons(audit(first, second, key=key)) == []


def test_a_text_that_was_erased_is_not_in_a_later_part(house: Callable[..., House]) -> None:
    """A part that is written after an erasure and still shows the text is a finding, though the
    erasure stands in another part.
    """
    made = resident(house(clock=Clock()))
    made.grant(purpose="stays not")
    many(made, 300)
    kept = dict(members_of(made.bundle()))["texts/000"]
    made.service.erase("fair", "officer", 4, None, "   ")
    first, rest = members_of(made.bundle(0, 255)), made.bundle(256)
    assert reasons(audit(packed(first), rest)) == []
    assert reasons(audit(packed([*first, ("texts/000", kept)]), rest)) == [
        "event 306: the purpose of event 4 is there, though it was erased"
    ]


def test_parts_without_texts(home: House) -> None:
    """Parts may leave out the texts, all or some; nothing is then missing."""
    first, rest = home.bundle(0, 255, texts=False), home.bundle(256, texts=False)
    assert not [name for name in names_of(first) + names_of(rest) if name.startswith("texts")]
    assert reasons(audit(first, rest)) == []
    assert reasons(audit(home.bundle(0, 255), rest)) == []
    assert reasons(audit(first, home.bundle(256))) == []
    assert reasons(audit(home.bundle(texts=False))) == []


def test_parts_that_do_not_continue(home: House) -> None:
    """A gap, an overlap, another order and another ledger's part are findings."""
    parts = [home.bundle(a, a + 255) for a in (0, 256, 512)]
    for order in ((0, 2), (0, 0), (1, 0), (0, 1, 1), (0, 2, 1)):
        verdict = audit(*(parts[n] for n in order))
        assert any("does not continue" in reason for reason in reasons(verdict))
    assert audit(parts[0], b"").count
    assert audit(b"", parts[0]).count


def test_parts_of_two_histories(house: Callable[..., House], home: House) -> None:
    """Two histories that were both signed with one key: the first part of the one and the second
    of the other do not go together.
    """
    made = many(resident(house("fork", clock=Clock())), 250)
    made.sign()
    copy = made.home.parent / "copy"
    made.copy_database(copy)
    many(made, 300)
    mine = made.bundle(0, 255)
    rest = made.bundle(256)
    (made.home / "vault/fair/signed").unlink()
    other = made.put_back(copy)
    other.grant("7")
    many(other, 299)
    theirs = other.bundle(256)
    assert reasons(audit(mine, rest)) == reasons(audit(other.bundle(0, 255), theirs)) == []
    verdict = audit(mine, theirs)
    assert any("the bundle before it" in reason for reason in reasons(verdict))
    other.close()


def test_a_kept_checkpoint_may_be_larger_than_the_first_part(house: Callable[..., House]) -> None:
    """What an auditor kept between two exports is compared with the last bundle."""
    made = many(resident(house(clock=Clock())), 300)
    first = made.bundle(0, 255)
    many(made, 100)
    kept = made.sign().note
    many(made, 100)
    assert reasons(audit(first, made.bundle(256), earlier=[kept])) == []
    assert reasons(audit(made.bundle(256), earlier=[kept])) == []
    assert audit(made.bundle(256), earlier=[kept.replace(b"\n405\n", b"\n404\n")]).count == 1


def test_a_part_is_anchored_by_its_own_signature_only(home: House) -> None:
    """In a part nobody can see which keys vouch for which: the key that an auditor was given must
    have signed the part's checkpoint itself.
    """
    part, whole = home.bundle(256), home.bundle()
    old, new = audit(whole).keys
    assert reasons(audit(whole, key=old)) == reasons(audit(part, key=new)) == []
    [reason] = reasons(audit(part, key=old))
    assert "all events are needed" in reason
    [reason] = reasons(audit(part, key=str(Signer.new(f"{ORIGIN}/fair").verifier)))
    assert "has not signed it" in reason


def test_kept_checkpoints_and_receipts_are_continued(house: Callable[..., House]) -> None:
    """Every checkpoint and receipt of this ledger that somebody kept is continued; one of another
    history, a damaged one, or one of a later size, is a finding.
    """
    home = eventful(house(clock=Clock()))
    data = home.bundle()
    members = dict(members_of(data))
    kept = list(unpack_entries(members["checkpoints/000"]))
    assert len(kept) == 4
    log = home.publisher.log("fair")
    last = home.service.ledgers.signed("fair")[-1]
    kept += [log.receipt(sequence, last).to_bytes() for sequence in (0, 7)]
    assert reasons(audit(data, earlier=kept)) == []
    for wrong in (
        kept[0].replace(b"\n5\n", b"\n6\n"),
        kept[0].replace(ORIGIN.encode(), b"example.org/ledges"),
        kept[0][:-10],
        kept[-1][:40],
        kept[-1].replace(b"index 7", b"index x"),
        b"",
        b"c2sp.org/tlog-proof@v1",
        b"\xff\xfe",
    ):
        verdict = audit(data, earlier=[wrong])
        assert [f.member for f in verdict.findings] == ["earlier checkpoint 1"]


def test_a_kept_checkpoint_shows_another_history(house: Callable[..., House]) -> None:
    """Two ledgers of one key that part after some events: a checkpoint of the one is a finding in
    the other, also if it is larger than the other is yet.
    """
    one = resident(house(clock=Clock()))
    one.grant()
    one.sign()
    copy = one.home.parent / "copy"
    one.copy_database(copy)
    one.grant("0.002")
    kept = one.sign().note
    vault = one.home / "vault"
    vault.rename(one.home.parent / "vault")
    other = one.put_back(copy)
    (one.home.parent / "vault/fair/signed").unlink()
    (one.home.parent / "vault").rename(vault)
    for _ in range(2):
        verdict = audit(other.bundle(), earlier=[kept])
        assert any("earlier checkpoint 1" in reason for reason in reasons(verdict))
        other.grant("0.003")
    other.close()
