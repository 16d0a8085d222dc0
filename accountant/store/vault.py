"""Signing keys, heads last signed and published, and the snapshots' key, outside the database.

A database that is put back from a backup does not take these with it, so that it is noticed. Only
the owner may read the folder: a key can sign another history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes
from typing import Final, Literal

from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint, Known
from accountant.ledger.notes import BadNote, Signer, Verifier
from accountant.store import StoreError
from accountant.store.whole import made_folder, sync, whole

Kind = Literal["signed", "published", "totals"]
KINDS: Final[dict[Kind, str]] = {
    "signed": "the head last signed",
    "published": "the head last published",
}
_OF_A_LEDGER: Final = re.compile(
    r"[a-z0-9_][a-z0-9_.-]{0,63}"
    r"/([0-9a-f]{8}\.key|(published|signed|totals)(\.before-recovery-[0-9]{1,3})?)"
)
"""The files that a backup holds, by their path in the vault."""
_SNAPSHOT_KEY: Final = "_snapshots.key"  # Beside the ledgers' folders, which begin with no "_"
_SNAPSHOT_KEY_BYTES: Final = 32


class VaultError(StoreError):
    """The vault cannot be used; the message names the remedy."""


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Turn an OSError into a VaultError: the path cannot be read, or written."""
    try:
        yield
    except OSError as error:
        raise VaultError(f"{path} cannot be {what}: {error}") from error


class Vault:
    """The vault of the service in ``home``, a folder a ledger. Any method may raise VaultError."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "vault"

    def signer(self, ledger: str, key: Verifier) -> Signer:
        """Return the private half of ``key``. Raises VaultError with the remedy without it."""
        path = self._key(ledger, key)
        try:
            signer = Signer.from_text(_private(path, "signing key").decode("ascii"))
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
        """Make a key and keep it, before anything is signed with it."""
        signer = Signer.new(name)
        path = self._key(ledger, signer.verifier)
        self._write(path, (signer.to_text() + "\n").encode(), new=True)
        return signer

    def snapshot_key(self) -> bytes | None:
        """Return the key that authenticates snapshots (snapshots.py); None before there is one."""
        path = self._folder / _SNAPSHOT_KEY
        with _explained(path, "read"):
            try:
                key = _private(path, "key of the snapshots")
            except FileNotFoundError:
                return None
        if len(key) != _SNAPSHOT_KEY_BYTES:
            raise VaultError(f"{path} is damaged: remove it, and snapshots are made anew")
        return key

    def new_snapshot_key(self) -> bytes:
        """Make that key. With a lost key only the snapshots are lost."""
        key = token_bytes(_SNAPSHOT_KEY_BYTES)
        self._write(self._folder / _SNAPSHOT_KEY, key)
        return key

    def keep(self, ledger: str, kind: Kind, data: bytes) -> None:
        """Keep a head, or the totals that go with it, whole or not at all."""
        self._write(self._folder / ledger / kind, data)

    def read(self, ledger: str, kind: Kind) -> bytes | None:
        """Return the bytes that were kept last; None if there are none."""
        path = self._folder / ledger / kind
        with _explained(path, "read"):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def kept_at(self, ledger: str, kind: Kind) -> float | None:
        """Return when that was kept, in seconds since 1970; None if there is nothing."""
        path = self._folder / ledger / kind
        with _explained(path, "read"):
            try:
                return path.stat().st_mtime
            except FileNotFoundError:
                return None

    def known(self, ledger: str) -> tuple[Known, ...]:
        """Return the heads that the ledger has to continue."""
        found = []
        for kind, whose in KINDS.items():
            if (data := self.read(ledger, kind)) is None:
                continue
            found.append(_head(data, self._folder / ledger / kind, whose))
        return tuple(found)

    def heads(self) -> dict[str, bytes]:
        """Return the files of all ledgers but keys, by their path in the vault. In each folder they
        are read by name: none of ``totals`` is older than ``signed``, and no ``signed`` older than
        ``published``, while a service goes on writing them.
        """
        return {name: data for name, data in self._files() if not name.endswith(".key")}

    def keys(self) -> dict[str, bytes]:
        """Return the signing keys of all ledgers, by their path in the vault."""
        return {name: data for name, data in self._files() if name.endswith(".key")}

    def _files(self) -> Iterator[tuple[str, bytes]]:
        with _explained(self._folder, "read"):
            for path in sorted(self._folder.glob("*/*")):
                name = path.relative_to(self._folder).as_posix()
                if _OF_A_LEDGER.fullmatch(name):
                    yield name, path.read_bytes()

    def put(self, files: Mapping[str, bytes]) -> None:
        """Put the files of a backup where there are none, and a later head in place of an earlier
        one with its totals. Everything else that is there stays.
        """
        for name in files:
            if not _OF_A_LEDGER.fullmatch(name):
                raise VaultError(f"{name!r} is no file of a vault")
        later = known_of(files, "the backup")
        here = known_of(self.heads(), str(self._folder))
        for name, data in sorted(files.items(), reverse=True):  # totals before the head
            ledger, file = name.split("/")
            kind = "signed" if file == "totals" else file
            place = f"{ledger}/{kind}"
            newer = place in here and place in later and here[place].size < later[place].size
            if newer or not (self._folder / name).exists():
                self._write(self._folder / name, data)

    def holds(self, ledger: str) -> None:
        """Raise VaultError if there is nothing of a ledger that was signed before."""
        folder = self._folder / ledger
        if self.read(ledger, "signed") is None and not any(folder.glob("*.key")):
            raise VaultError(
                f"the heads of {ledger} were signed, and {folder} has neither its key nor a head: "
                "put the vault back, or, if it is lost for good, `accountant recover` opens a new "
                "epoch with a new key"
            )

    def retire(self, ledger: str) -> None:
        """Put the heads aside, when the ledger goes on in a new epoch that they do not bind."""
        for kind in (*KINDS, "totals"):
            path = self._folder / ledger / kind
            asides = (path.with_name(f"{kind}.before-recovery-{n}") for n in range(1, 1_000))
            with _explained(path, "put aside"):
                aside = next((each for each in asides if not each.exists()), None)
                if aside is not None and path.exists():
                    path.rename(aside)

    def _key(self, ledger: str, key: Verifier) -> Path:
        return self._folder / ledger / f"{key.id.hex()}.key"

    def _write(self, path: Path, data: bytes, *, new: bool = False) -> None:
        """Write a file, in place of one that is there; but a ``new`` one takes no other's place."""
        with _explained(path, "written"):
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            for folder in (self._folder, path.parent):
                made_folder(folder, 0o700)
            if new and path.exists():
                raise FileExistsError("it is there already")
            with whole(path, 0o600) as file:
                file.write(data)
            for folder in (self._folder, self._folder.parent) if new else ():
                sync(folder)  # another process may have made them a moment ago


def known_of(files: Mapping[str, bytes], where: str) -> dict[str, Known]:
    """Return the heads among the files of a vault that its ledgers have to continue, by path."""
    found = {}
    for name, data in files.items():
        kind = name.partition("/")[2]
        if whose := next((said for one, said in KINDS.items() if one == kind), None):
            found[name] = _head(data, f"{name} of {where}", whose)
    return found


def _head(data: bytes, path: Path | str, whose: str) -> Known:
    """Return the head of a note. Raises VaultError."""
    try:
        head = Checkpoint.from_text(notes.parse(data).text)
    except BadNote as error:
        raise VaultError(f"{path} is damaged: {error}") from error
    return Known(head.size, head.root, whose)


def _private(path: Path, what: str) -> bytes:
    """Return the content of a file. Raises VaultError if others may read it, OSError."""
    if path.stat().st_mode & 0o077:
        raise VaultError(f"others may read the {what} {path}: chmod 600 it")
    return path.read_bytes()
