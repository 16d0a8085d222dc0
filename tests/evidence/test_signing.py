"""Keys: made once, shown to nobody, vouched for by the ones before them."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from house import ORIGIN, ROOMS, House, adopt, audit, numbered, reasons, resident

from accountant.budget.errors import Problem
from accountant.ledger.notes import Signer, Verifier, parse
from accountant.store.ledgers import StoreError


def key_files(house: House) -> list[Path]:
    """The private keys of the ledger."""
    return sorted((house.home / "vault/fair").glob("*.key"))


def signers_of(house: House, note: bytes) -> list[str]:
    """Which of the ledger's keys have signed a checkpoint."""
    state = house.service.state("fair")
    keys = [Verifier.from_text(key.text) for key in state.custody.keys]
    return [str(key) for key in parse(note).verified(keys)]


def adopted(house: House) -> list[str]:
    """The ledger's keys, in the order of their adoption."""
    state = house.service.state("fair")
    return [key.text for key in state.custody.keys]


def test_a_key_is_made_once_for_its_owner_only(house: Callable[..., House]) -> None:
    """The first signature makes a key; later ones, and other services, use it. Only its owner may
    read it and what is kept with it, whatever the process's mask.
    """
    before = os.umask(0)
    try:
        made = resident(house())
        first = made.sign()
        [path] = key_files(made)
    finally:
        os.umask(before)
    text = path.read_text()
    made.grant()
    again = made.again()
    assert again.sign().number == first.number + 1
    assert key_files(made) == [path]
    assert path.read_text() == text
    [key] = adopted(made)
    assert key == str(Signer.from_text(text).verifier)
    assert key.startswith(f"{ORIGIN}/fair+")
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert {file.name for file in path.parent.iterdir()} >= {"signed", "totals"}
    again.close()


def test_a_key_is_shown_nowhere(
    house: Callable[..., House], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither database, logs, answers, messages nor bundles hold any part of a private key."""
    made = resident(house())
    made.sign()
    made.publisher.rotate("fair", "operator:o")
    with structlog.testing.capture_logs() as logs:
        made.publisher.publish("fair")
        answers = [made.get(path).content for path in ("/log/checkpoint", "/receipts/0", "/events")]
    shown = b"".join([*answers, made.bundle(), repr(logs).encode(), made.path.read_bytes()])
    shown += (made.home / "accountant.db-wal").read_bytes()
    for path in key_files(made):
        text = path.read_text()
        damaged = [text[:-3], text.replace("PRIVATE", "PUBLIC"), text[:30], "", "x" * 99, text * 2]
        key = Signer.from_text(text).verifier
        for wrong in damaged:
            path.write_text(wrong)
            with pytest.raises(StoreError) as caught:
                made.vault.signer("fair", key)
            shown += repr(caught.value).encode() + str(caught.value).encode()
        path.write_text(text)
        shown += repr(made.vault.signer("fair", key)).encode()
    shown += "".join(capfd.readouterr()).encode()
    for path in key_files(made):
        encoded = path.read_text().strip().split("+", 4)[4]
        seed = base64.b64decode(encoded)[1:]
        for part in (encoded[2:20], encoded[20:], base64.b64encode(seed).decode()[:20], seed.hex()):
            assert part.encode() not in shown
        assert seed not in shown


def test_a_key_that_others_may_read_is_not_used(house: Callable[..., House]) -> None:
    """A key file with any right for others is refused by name; grants go on; with its rights back
    it signs again.
    """
    made = resident(house())
    signed = made.sign()
    [path] = key_files(made)
    for mode in (0o640, 0o604, 0o660, 0o644):
        path.chmod(mode)
        made.grant()
        with pytest.raises(Problem, match=f"chmod 600.*|{path.name}"):
            made.sign()
        assert made.get("/receipts/0").status_code == 200  # which the last one covers
        last = made.head().size - 1
        answer = made.get(f"/receipts/{last}")
        assert answer.status_code == 503
        assert "PRIVATE" not in answer.text
    path.chmod(0o600)
    assert made.sign().number == signed.number + 1


def test_a_lost_key_is_named(house: Callable[..., House]) -> None:
    """Without its key nothing is signed, and the message says what to do; grants go on."""
    made = resident(house())
    made.sign()
    [path] = key_files(made)
    text = path.read_bytes()
    path.unlink()
    made.grant()
    with pytest.raises(Problem, match="accountant recover"):
        made.sign()
    other = Signer.new(f"{ORIGIN}/fair")
    path.write_text(other.to_text() + "\n")
    path.chmod(0o600)
    with pytest.raises(Problem, match="is not"):
        made.sign()
    path.write_bytes(text)
    assert reasons(audit(made.bundle())) == []


def test_a_rotation_is_vouched_for(house: Callable[..., House]) -> None:
    """The first checkpoint after an adoption is signed by the old key and the new one, later ones
    by the new one; of several rotations in between every key signs; also after a restart.
    """
    made = resident(house())
    assert signers_of(made, made.sign().note) == adopted(made)
    made.publisher.rotate("fair", "operator:o")
    one, two = adopted(made)
    assert signers_of(made, made.sign().note) == [two, one]
    made.grant()
    assert signers_of(made, made.sign().note) == [two]
    made.publisher.rotate("fair", "operator:o")
    made.publisher.rotate("fair", "operator:o")
    again = made.again()
    *_, three, four = adopted(made)
    assert set(signers_of(again, again.sign().note)) == {two, three, four}
    again.grant()
    assert signers_of(again, again.sign().note) == [four]
    assert reasons(audit(again.bundle())) == []
    for key in (one, two, three, four):
        assert reasons(audit(again.bundle(), key=key)) == []
    again.close()


def test_old_keys_are_not_needed_for_ever(house: Callable[..., House]) -> None:
    """Once both have signed, the old key may be destroyed; before that it may not."""
    made = resident(house())
    made.sign()
    [old] = key_files(made)
    made.publisher.rotate("fair", "operator:o")
    text = old.read_bytes()
    old.unlink()
    with pytest.raises(Problem, match="is not there"):
        made.sign()
    old.write_bytes(text)
    old.chmod(0o600)
    made.sign()
    old.unlink()
    made.grant()
    assert reasons(audit(made.bundle())) == []


def test_nothing_is_signed_without_need(house: Callable[..., House]) -> None:
    """A ledger that has not grown is not signed again, and receipts take the checkpoint that is
    there, published or not.
    """
    made = resident(house())
    first = made.sign()
    assert made.sign() == first
    for sequence in range(first.size):
        assert first.note in made.get(f"/receipts/{sequence}").content
    nobody = Signer.new("witness.example/w", 4).verifier
    text = (
        f"publication: {{required: 1, witnesses: [{{url: 'http://127.0.0.1:1', key: {nobody}}}]}}"
    )
    adopt(made, ROOMS, text + "\n", confirmed_by="officer")
    made.sign()
    for _ in range(3):
        made.grant()
        for sequence in range(first.size + 1):
            assert made.get(f"/receipts/{sequence}").status_code == 200
    assert len(made.service.ledgers.signed("fair")) == 2
    numbered(made)
