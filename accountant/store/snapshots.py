"""Snapshots on disk, so that a start does not have to fold every event again: of states, and of
what was followed for pages (``reporting/keeping.py``).

A snapshot ends with a MAC over all before it (HMAC-SHA-256), whose key is in the vault. An older
snapshot that is put back is a sound one of fewer events: the database has to continue its tree. Any
change of the code that folds makes a snapshot stale. Nothing is lost with snapshots, or their key.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from accountant.config.logs import logger
from accountant.ledger.events import canonical, digest
from accountant.ledger.merkle import Tree
from accountant.privacy import engine
from accountant.store.vault import Vault, VaultError
from accountant.store.whole import clear_parts, whole

_NONE: Final = "there is none"
_FORMAT: Final = b"accountant snapshot 1\n"
_LENGTH: Final = 8
_MAC: Final = sha256().digest_size
_PACKAGE: Final = Path(__file__).resolve().parent.parent
_ABANDONED: Final = 3_600.0
"""Seconds after which a part of a snapshot is what a process left that was killed."""
_FOLDING: Final = ("budget", "privacy", "ledger/events.py")  # The code that states depend on

_log = logger()


@cache
def code_digest(package: Path = _PACKAGE, folding: tuple[str, ...] = _FOLDING) -> str:
    """Return the digest of code, by default of that which folds. Raises OSError if there are no
    sources to read.
    """
    found = [package / name for name in folding]
    sources = [file for path in found for file in (path.rglob("*.py") if path.is_dir() else [path])]
    names = [(file.relative_to(package).as_posix(), file) for file in sorted(sources)]
    return digest([[name, sha256(file.read_bytes()).hexdigest()] for name, file in names])


class Snapshots:
    """The snapshots of a service whose files are in ``home``, one a ledger. No method raises: a
    failure is logged, and costs time. ``code`` is read at the start, before its files can change.
    """

    def __init__(self, home: Path, code: str | None = None, folder: str = "snapshots") -> None:
        self.folder, self.vault = home / folder, Vault(home)
        self.code = code or code_digest()

    def keep(self, ledger: str, tree: Tree, parts: Sequence[bytes]) -> bool:
        """Keep the state after the committed events of ``tree``. Return whether that worked."""
        end = {"size": tree.size, "peaks": [peak.hex() for peak in tree.peaks]}
        head = canonical(self._terms(ledger) | end)
        try:
            mac = hmac.new(self.vault.snapshot_key() or self.vault.new_snapshot_key(), None, sha256)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            clear_parts(self._path(ledger), _ABANDONED)
            with whole(self._path(ledger), 0o600, durable=False) as file:
                for part in (_FORMAT, len(head).to_bytes(_LENGTH, "little"), head, *parts):
                    mac.update(part)
                    file.write(part)
                file.write(mac.digest())
        except (OSError, VaultError) as error:
            _log.warning("snapshot not kept", population=ledger, reason=str(error))
            return False
        return True

    def drop(self, ledger: str) -> None:
        """Remove the snapshot of a ledger."""
        with suppress(OSError):
            self._path(ledger).unlink(missing_ok=True)

    def read(self, ledger: str) -> tuple[Tree, memoryview] | None:
        """Return the tree and the state that were kept, if they are whole, ours and not stale."""
        found = self._read_or_reason(ledger)
        if isinstance(found, str):
            _log.info("no snapshot", population=ledger, reason=found)
            return None
        return found

    def fault(self, ledger: str) -> str | None:
        """Return why the snapshot of a ledger is of no use; None if it is, or if there is none."""
        found = self._read_or_reason(ledger)
        return found if isinstance(found, str) and found != _NONE else None

    def _read_or_reason(self, ledger: str) -> tuple[Tree, memoryview] | str:
        try:
            return self._read(ledger)
        except (ValueError, KeyError, TypeError, OSError, VaultError) as error:
            return _NONE if isinstance(error, FileNotFoundError) else str(error)

    def _path(self, ledger: str) -> Path:
        return self.folder / f"{ledger}.snapshot"

    def _terms(self, ledger: str) -> dict[str, Any]:
        """Return the facts that must be as they were when the snapshot was made."""
        return {"ledger": ledger, "code": self.code, "engine": engine.CURRENT}

    def _read(self, ledger: str) -> tuple[Tree, memoryview]:
        data = memoryview(self._path(ledger).read_bytes())
        if bytes(data[: len(_FORMAT)]) != _FORMAT:
            raise ValueError("it has another format")
        if (key := self.vault.snapshot_key()) is None:
            raise ValueError("the key that it was made with is lost")
        if not hmac.compare_digest(hmac.digest(key, data[:-_MAC], "sha256"), data[-_MAC:]):
            raise ValueError("it is torn, or another service made it, or it was changed")
        # From here on the bytes are those of a service with this key, perhaps for another ledger.
        begin = len(_FORMAT) + _LENGTH
        end = begin + int.from_bytes(data[len(_FORMAT) : begin], "little")
        head = orjson.loads(data[begin:end])
        for name, expected in self._terms(ledger).items():
            if head[name] != expected:
                raise ValueError(f"it was made with another {name}")
        return Tree(head["size"], tuple(map(bytes.fromhex, head["peaks"]))), data[end:-_MAC]
