"""What is kept outside the database: signing keys, and the heads last signed and published; also
the key that authenticates snapshots.

A database that is put back from a backup does not take these with it, so that it is noticed. Only
the owner may read the folder: who has a key can sign another history.
"""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_bytes
from typing import Final, Literal

from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint, Known
from accountant.ledger.notes import BadNote, Signer, Verifier
from accountant.store.ledgers import StoreError
from accountant.store.whole import made_folder, sync, whole

Kind = Literal["signed", "published", "totals"]
KINDS: Final[dict[Kind, str]] = {
    "signed": "the head last signed",
    "published": "the head last published",
}
_OWNER: Final = 0o600

_SNAPSHOT_KEY: Final = "_snapshots.key"
"""Beside the ledgers' folders; no ledger's name begins with it."""
_SNAPSHOT_KEY_BYTES: Final = 32


class VaultError(StoreError):
    """Something in the vault is not as it has to be; the message says what to do."""


class Vault:
    """A folder with one folder a ledger. Every method may raise VaultError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def signer(self, ledger: str, key: Verifier) -> Signer:
        """The private half of ``key``. Raises VaultError, saying what to do, if it is not there."""
        path = self._key(ledger, key)
        try:
            _private_to_owner(path, "signing key")
            signer = Signer.from_text(path.read_text("ascii"))
        except FileNotFoundError:
            raise VaultError(
                f"the signing key {path} is not there: put it back, or, if it is lost for good, "
                "`accountant recover` opens a new epoch with a new key"
            ) from None
        except (OSError, ValueError) as error:
            raise VaultError(f"the signing key {path} cannot be read: {error}") from None
        if signer.verifier != key:
            raise VaultError(f"the signing key {path} is not {key}")
        return signer

    def new_signer(self, ledger: str, name: str) -> Signer:
        """Makes a key and keeps it, before anything is signed with it."""
        signer = Signer.new(name)
        self._write_new(self._key(ledger, signer.verifier), (signer.to_text() + "\n").encode())
        return signer

    def snapshot_key(self) -> bytes | None:
        """What authenticates snapshots (snapshots.py); None before there is one."""
        path = self._folder / _SNAPSHOT_KEY
        try:
            _private_to_owner(path, "key of the snapshots")
            key = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VaultError(f"{path} cannot be read: {error}") from error
        if len(key) != _SNAPSHOT_KEY_BYTES:
            raise VaultError(f"{path} is damaged: remove it, and snapshots are made anew")
        return key

    def new_snapshot_key(self) -> bytes:
        """Makes that key. If another process does so too, one of them made its snapshots in vain,
        which is all that is ever lost with the key.
        """
        path, key = self._folder / _SNAPSHOT_KEY, token_bytes(_SNAPSHOT_KEY_BYTES)
        try:
            self._make(self._folder)
            with whole(path, _OWNER) as file:
                file.write(key)
        except OSError as error:
            raise VaultError(f"{path} cannot be written: {error}") from error
        return key

    def keep(self, ledger: str, kind: Kind, data: bytes) -> None:
        """Keeps a head, or the totals that go with it, whole or not at all."""
        path = self._folder / ledger / kind
        try:
            self._make(path.parent)
            with whole(path, _OWNER) as file:
                file.write(data)
        except OSError as error:
            raise VaultError(f"{path} cannot be written: {error}") from error

    def read(self, ledger: str, kind: Kind) -> bytes | None:
        """What was kept last, if anything was."""
        path = self._folder / ledger / kind
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VaultError(f"{path} cannot be read: {error}") from error

    def known(self, ledger: str) -> tuple[Known, ...]:
        """The heads that the ledger has to continue."""
        found = []
        for kind, whose in KINDS.items():
            if (data := self.read(ledger, kind)) is None:
                continue
            try:
                head = Checkpoint.from_text(notes.parse(data).text)
            except BadNote as error:
                raise VaultError(f"{self._folder / ledger / kind} is damaged: {error}") from error
            found.append(Known(head.size, head.root, whose))
        return tuple(found)

    def holds(self, ledger: str) -> None:
        """Raises VaultError if there is nothing of a ledger that was signed before."""
        folder = self._folder / ledger
        if self.read(ledger, "signed") is None and not any(folder.glob("*.key")):
            raise VaultError(
                f"the heads of {ledger} were signed, and {folder} has neither its key nor a head: "
                "put the vault back, or, if it is lost for good, `accountant recover` opens a new "
                "epoch with a new key"
            )

    def retire(self, ledger: str) -> None:
        """Puts the heads aside, when the ledger goes on in a new epoch that they do not bind."""
        for kind in (*KINDS, "totals"):
            path = self._folder / ledger / kind
            try:
                for number in range(1, 1_000):
                    aside = path.with_name(f"{kind}.before-recovery-{number}")
                    if not aside.exists():
                        path.rename(aside)
                        break
            except FileNotFoundError:
                continue
            except OSError as error:
                raise VaultError(f"{path} cannot be put aside: {error}") from error

    def _key(self, ledger: str, key: Verifier) -> Path:
        return self._folder / ledger / f"{key.id.hex()}.key"

    def _make(self, folder: Path) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        for each in (self._folder, folder):
            made_folder(each, 0o700)

    def _write_new(self, path: Path, data: bytes) -> None:
        """Writes a file that is not there yet: a key never takes another one's place."""
        try:
            self._make(path.parent)
            with open(path, "xb", opener=_private) as file:
                try:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    path.unlink()  # half a key is none
                    raise
            for folder in (path.parent, self._folder, self._folder.parent):
                sync(folder)  # another process may have made them a moment ago
        except OSError as error:
            raise VaultError(f"{path} cannot be written: {error}") from error


def _private_to_owner(path: Path, what: str) -> None:
    """Raises VaultError if others may read ``path``, OSError if it is not there."""
    if path.stat().st_mode & 0o077:
        raise VaultError(f"others may read the {what} {path}: chmod 600 it")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, _OWNER)


def vault_of(home: Path) -> Vault:
    """The vault of a service whose files are in ``home``."""
    return Vault(home / "vault")
