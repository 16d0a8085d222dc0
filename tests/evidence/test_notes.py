"""Signed notes, cosignatures and checkpoints against published examples and whatever comes."""

from __future__ import annotations

import base64
import contextlib
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given
from hypothesis import strategies as st

from accountant.ledger.checkpoints import Checkpoint, Receipt
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import (
    COSIGNATURE,
    ED25519,
    BadNote,
    Signer,
    Verifier,
    parse,
    sign,
    signature,
)

GOLDEN = Path(__file__).parent.parent / "golden/ledger"
NOTES = json.loads((GOLDEN / "signed_note_sumdb.json").read_text())
BODIES = json.loads((GOLDEN / "checkpoint_body_parse.json").read_text())["cases"]
CASES = {case["desc"]: case for case in NOTES["open_cases"]}
LOG, WITNESS = Signer.new("example.org/log"), Signer.new("w.example/1", COSIGNATURE)
TEXT = "example.org/log\n7\n" + base64.b64encode(bytes(32)).decode() + "\n"


def bytes_of(case: dict[str, Any]) -> bytes:
    """The note of a published case."""
    return base64.b64decode(case["note_base64"]) if "note_base64" in case else case["note"].encode()


def test_the_published_note_is_signed_to_the_byte() -> None:
    """The published key signs the published text to the published note, and verifies it."""
    case = NOTES["sign"]
    signer = Signer.from_text(case["skey"])
    assert signer.to_text() == case["skey"]
    assert sign(case["text"], [signer]) == case["note"].encode()
    assert parse(case["note"].encode()).verified([signer.verifier]) == [signer.verifier]


@pytest.mark.parametrize("text", NOTES["vkeys_ok"])
def test_published_keys_are_read_and_written(text: str) -> None:
    """A published verifier key is spelled again as it was."""
    assert str(Verifier.from_text(text)) == text


def test_a_key_from_a_seed_of_zeros() -> None:
    """The key that Go makes of 32 zeros has its published verifier text."""
    made = Signer(
        NOTES["generate_key_zero_seed"]["name"],
        ED25519,
        Ed25519PrivateKey.from_private_bytes(bytes(32)),
    )
    assert str(made.verifier) == NOTES["generate_key_zero_seed"]["vkey"]


GOOD_KEY = NOTES["vkeys_ok"][0]
BAD_KEYS = [
    *NOTES["vkeys_bad"],
    *("", "+", "++", "a+b+c", "name+00000000+", GOOD_KEY[:-1], GOOD_KEY + "=", " " + GOOD_KEY),
    GOOD_KEY.replace("c74f20a3", "c74f20a4"),
    GOOD_KEY.replace("c74f20a3", "C74F20A3"),
    GOOD_KEY.replace("PeterNeumann", "Peter Neumann"),
    GOOD_KEY.replace("PeterNeumann", ""),
    GOOD_KEY.replace("TW", "TX"),
]


@pytest.mark.parametrize("text", BAD_KEYS)
def test_bad_keys_are_refused(text: str) -> None:
    """A key of another kind, with another hash or in another spelling is no key."""
    with pytest.raises(ValueError):  # noqa: PT011 whichever part is wrong
        Verifier.from_text(text)


@pytest.mark.parametrize("name", CASES)
def test_published_notes_open_as_published(name: str) -> None:
    """Notes that Go's implementation opens are opened here, with the same verified signers; those
    that it refuses are refused, or have no signature of a trusted key.
    """
    case = CASES[name]
    trusted = [Verifier.from_text(text) for text in case["vkeys"]]
    if case["ok"]:
        assert [key.name for key in parse(bytes_of(case)).verified(trusted)] == case["verified"]
    elif case.get("error") == "no verifiable signatures":
        assert parse(bytes_of(case)).verified(trusted) == []
    elif case.get("error") != "ambiguous key":
        with pytest.raises(BadNote):
            parse(bytes_of(case)).verified(trusted)


def test_a_key_that_is_trusted_twice_counts_once() -> None:
    """Where Go refuses a list of trusted keys with a duplicate, it is one key here: a quorum cannot
    be reached by naming somebody twice.
    """
    case = CASES["duplicate configured verifier used"]
    trusted = [Verifier.from_text(text) for text in case["vkeys"]]
    assert parse(bytes_of(case)).verified(trusted) == [trusted[0]]


# Two keys of one name with the same four bytes of hash; of the second nobody has the private half.
SEED, OTHER = sha256(b"4372").digest(), sha256(b"other 636102").digest()


def test_keys_that_cannot_be_told_apart_verify_nothing() -> None:
    """If two trusted keys have one name and hash, a signature could be either's: it is refused."""
    one = Signer("example.org/log", ED25519, Ed25519PrivateKey.from_private_bytes(SEED))
    two = Verifier("example.org/log", ED25519, OTHER)
    assert one.verifier.id == two.id
    note = parse(sign(TEXT, [one]))
    assert note.verified([one.verifier]) == [one.verifier]
    for trusted in ([one.verifier, two], [two, one.verifier], [two]):
        with pytest.raises(BadNote, match="does not hold"):
            note.verified(trusted)


@pytest.mark.parametrize("count", [16, 100])
def test_many_signatures_are_accepted(count: int) -> None:
    """A note with sixteen signatures, as every client has to accept, and with a hundred."""
    signers = [Signer.new(f"s{n}") for n in range(count)]
    note = parse(sign(TEXT, signers))
    keys = [signer.verifier for signer in signers]
    assert note.verified(keys) == keys
    assert note.verified(keys[3:5]) == keys[3:5]


def test_too_many_or_too_much_is_refused() -> None:
    """More than a hundred signatures, or more than a megabyte, is no note."""
    line = LOG.line(TEXT.encode()).encode()
    with pytest.raises(BadNote, match="101 signatures"):
        parse(TEXT.encode() + b"\n" + line * 101)
    with pytest.raises(BadNote, match="too long"):
        parse(b"a" * 1_000_000 + b"\n\n" + line)


def test_a_trusted_keys_bad_signature_is_never_ignored() -> None:
    """Unknown signers are ignored; a trusted key's line must hold, wherever it stands."""
    data = sign(TEXT, [LOG, Signer.new("stranger")])
    note = parse(data.replace(b"\n7\n", b"\n8\n"))
    assert note.verified([]) == note.verified([Signer.new("third").verifier]) == []
    with pytest.raises(BadNote, match="does not hold"):
        note.verified([LOG.verifier])
    forged = base64.b64encode(LOG.verifier.id + bytes(64)).decode()
    first = parse(f"{TEXT}\n— {LOG.name} {forged}\n{LOG.line(TEXT.encode())}".encode())
    with pytest.raises(BadNote, match="does not hold"):
        first.verified([LOG.verifier])


@given(st.integers(0, 2**64 - 1))
@example(0)
@example(1_790_000_000)
def test_a_cosignature_binds_its_time(time: int) -> None:
    """A cosignature is over its own time and the text, 8 bytes and a signature long; with another
    time it does not hold.
    """
    text = TEXT.encode()
    parts = signature(WITNESS.line(text, time)[:-1])
    assert (parts.id, len(parts.blob)) == (WITNESS.verifier.id, 72)
    assert int.from_bytes(parts.blob[:8], "big") == time
    assert WITNESS.verifier.holds(text, parts.blob)
    signed = f"cosignature/v1\ntime {time}\n".encode() + text
    WITNESS.private.public_key().verify(parts.blob[8:], signed)
    other = (time ^ 1).to_bytes(8, "big") + parts.blob[8:]
    assert not WITNESS.verifier.holds(text, other)
    assert not WITNESS.verifier.holds(text + b"\n", parts.blob)
    assert not WITNESS.verifier.holds(text, parts.blob[8:])
    assert not WITNESS.verifier.holds(text, parts.blob + b"\0")


def test_a_signature_of_one_kind_is_none_of_the_other() -> None:
    """The same key and name as a log's and as a witness's are two keys: neither line passes for the
    other's, also if its key id is put before it.
    """
    text = TEXT.encode()
    twin = Signer(WITNESS.name, ED25519, WITNESS.private)
    assert twin.verifier.id != WITNESS.verifier.id
    note = parse(sign(TEXT, [twin]))
    assert note.verified([WITNESS.verifier]) == []
    blob = note.signatures[0].blob
    assert not WITNESS.verifier.holds(text, blob)
    assert not WITNESS.verifier.holds(text, bytes(8) + blob)
    assert not twin.verifier.holds(text, signature(WITNESS.line(text, 1)[:-1]).blob)


BAD_LINES = [
    "",
    "— a",
    "- a AAAAAAAA",
    "—  a AAAAAAAA",
    "— a  AAAAAAAA",
    "— a AAAAAAAA ",
    "— a+b AAAAAAAA",
    "— a\u00a0b AAAAAAAA",
    "— a\u2003b AAAAAAAA",
    "— a\x01b AAAAAAAA",
    "— a\x1b[2Jb AAAAAAAA",
    "— a AAAA",
    "— a AAAAAAA",
    "— a AAAAAAB=",
    "— a AAAAA==A",
    "— a AAAA_-==",
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_other_lines_are_no_signatures(line: str) -> None:
    """Control characters, other spaces, other base64 and short signatures make a note malformed."""
    with pytest.raises(BadNote):
        parse((TEXT + "\n" + LOG.line(TEXT.encode()) + line + "\n").encode())


@pytest.mark.parametrize("text", ["", "a", "a\x00\n", "a\tb\n", "a\r\n", "\x1b\n"])
def test_no_note_text(text: str) -> None:
    """A text that does not end its last line, or has control characters, is never signed."""
    with pytest.raises(BadNote):
        sign(text, [LOG])


@given(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)))
def test_any_bytes_are_a_note_or_a_bad_note(data: bytes) -> None:
    """Bytes of any kind as note, receipt, checkpoint, key or signature: understood or refused as
    such, never another error.
    """
    note = TEXT.encode() + b"\n" + LOG.line(TEXT.encode()).encode()
    for whole in (
        data,
        data + note,
        note + data,
        note.replace(b"7", data, 1),
        TEXT.encode() + data,
    ):
        with contextlib.suppress(BadNote):
            parse(whole).verified([LOG.verifier, WITNESS.verifier])
        with contextlib.suppress(BadNote):
            Receipt.from_bytes(b"c2sp.org/tlog-proof@v1\n" + whole)
        with contextlib.suppress(BadNote):
            Checkpoint.from_text(whole)
    line = data.decode(errors="surrogateescape")
    for text in (line, "— " + line, "— a " + line):
        with contextlib.suppress(BadNote):
            signature(text)
    for text in (line, "a+00000000+" + line, "PRIVATE+KEY+a+00000000+" + line, GOOD_KEY + line):
        for read in (Verifier.from_text, Signer.from_text):
            with contextlib.suppress(ValueError):
                read(text)


@given(st.data())
def test_every_changed_byte_is_noticed(data: st.DataObject) -> None:
    """A signed note of which any byte is changed does not verify as the same keys' note."""
    note = sign(TEXT, [LOG]) + WITNESS.line(TEXT.encode(), 5).encode()
    at = data.draw(st.integers(0, len(note) - 1))
    changed = bytearray(note)
    changed[at] ^= data.draw(st.integers(1, 255))
    try:
        found = parse(bytes(changed)).verified([LOG.verifier, WITNESS.verifier])
    except BadNote:
        return
    assert len(found) < 2


@pytest.mark.parametrize("case", BODIES, ids=[case["desc"] for case in BODIES])
def test_published_checkpoints_are_read_as_published(case: dict[str, Any]) -> None:
    """Good bodies are read with their values, bad ones refused. Empty extension lines are against
    the specification, and refused.
    """
    body = case["body"].encode()
    if not case["ok"]:
        with pytest.raises(BadNote):
            Checkpoint.from_text(body)
        return
    found = Checkpoint.from_text(body)
    if "origin" in case:
        assert (found.origin, found.size) == (case["origin"], case["size"])
        assert found.to_text() == case["body"]
    if "hash_ascii" in case:
        assert found.root == case["hash_ascii"].encode()
    if "hash_is_leaf_hash_of_ascii" in case:
        assert found.root == leaf_hash(case["hash_is_leaf_hash_of_ascii"].encode())


BAD_SIZES = ["00", "01", "+1", " 1", "1 ", "1_0", "0x1", "１", "", "9223372036854775808", "1.0"]


@pytest.mark.parametrize("size", BAD_SIZES)
def test_a_size_has_one_spelling(size: str) -> None:
    """A size is a plain decimal number below 2**63."""
    root = base64.b64encode(bytes(32)).decode()
    with pytest.raises(BadNote):
        Checkpoint.from_text(f"log\n{size}\n{root}\n".encode())


def test_a_private_key_is_never_shown() -> None:
    """Neither its representation nor the message of any error holds a private key."""
    text = LOG.to_text()
    secret = text.split("+", 4)[4]  # base64 itself may hold and end with plus signs
    assert secret not in repr(LOG) + str(LOG) + repr([LOG]) + f"{LOG}"
    for wrong in (text[:-4], text + "AAAA", text.replace("example", "other"), text[1:], "x" + text):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 whichever part is wrong
            Signer.from_text(wrong)
        shown = f"{caught.value} {caught.value!r} {caught.value.__cause__}"
        assert secret[:16] not in shown
        assert secret[-16:] not in shown


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\tb", "a\x00", "\u2028", "a" * 256])
def test_no_key_has_such_a_name(name: str) -> None:
    """A name with spaces, plus signs or control characters could not be read back."""
    with pytest.raises(ValueError, match="key name"):
        Signer.new(name)
