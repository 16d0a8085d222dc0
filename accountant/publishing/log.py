"""A ledger as a log that any C2SP client reads (tlog-tiles), made from what the store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile

from accountant.budget.custody.publication import Publication
from accountant.budget.errors import NotFound
from accountant.ledger.checkpoints import Checkpoint, Receipt
from accountant.ledger.merkle import MissingHash, consistency_proof, includes, inclusion_proof
from accountant.ledger.notes import BadNote, parse
from accountant.ledger.tiles import Tile, pack_entries
from accountant.store.ledgers import Ledgers, Signed, StoreError


class Log:
    """One ledger's log, read-only. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, ledger: str) -> None:
        self._ledgers = ledgers
        self._ledger = ledger

    def hashes(self, level: int, first: int, count: int) -> list[bytes]:
        """Return stored hashes of the tree."""
        return self._ledgers.hashes(self._ledger, level, first, count)

    def tile(self, tile: Tile, size: int) -> bytes:
        """Return a tile, or entry bundle, of the log at ``size``. Raises NotFound beyond it."""
        covered = size if tile.level is None else size >> (8 * tile.level)
        if tile.first + tile.width > covered:
            raise NotFound("no-such-tile", f"the log of {size} entries has no {tile.path} yet")
        if tile.level is not None:
            data = self.hashes(tile.level, tile.first, tile.width)
        else:
            rows = self._ledgers.read(self._ledger, tile.first, tile.width)
            data = [row.body for row in rows]
        if len(data) != tile.width:
            raise NotFound("no-such-tile", f"{tile.path} has holes: the ledger is damaged")
        return pack_entries(data) if tile.level is None else b"".join(data)

    def published(self, publication: Publication, kept: bytes | None) -> Signed | None:
        """Return the last checkpoint that enough witnesses have cosigned, with all cosignatures;
        ``kept`` as in ``kept_since``.
        """
        for signed in self.kept_since(kept):
            if publication.met_by(name for name, _ in signed.cosignatures):
                return signed
        return None

    def kept_since(self, kept: bytes | None) -> Iterator[Signed]:
        """Yield checkpoints from ``kept``, the note that the vault kept last, back to the first.

        A later one is known to the database only and is not shown: if the database were restored
        from a copy, another could be signed in its place.
        """
        return dropwhile(lambda signed: signed.note != kept, self.newest())

    def newest(self) -> Iterator[Signed]:
        """Yield checkpoints from the last back to the first."""
        last = self._ledgers.last_signed(self._ledger)
        number = -1 if last is None else last.number
        while number >= 0:
            first = max(0, number - 63)
            yield from reversed(self._ledgers.signed(self._ledger, first, number + 1))
            number = first - 1

    def receipt(self, sequence: int, signed: Signed) -> Receipt:
        """Return the proof that event ``sequence`` is in the log under ``signed``. Raises NotFound
        if it is not.
        """
        if not 0 <= sequence < signed.size:
            raise NotFound("unknown-event", f"the log of {signed.size} entries has no {sequence}")
        with complete():
            proof = inclusion_proof(self.hashes, sequence, signed.size)
        leaf = self.hashes(0, sequence, 1)[0]
        if not includes(checkpoint_of(signed).root, signed.size, sequence, leaf, proof):
            raise StoreError(f"the tree that is kept of {self._ledger} is damaged")
        return Receipt(sequence, tuple(proof), signed.full)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Return the proof that the log at size ``new`` continues the log at size ``old``."""
        with complete():
            return consistency_proof(self.hashes, old, new)


@contextmanager
def complete() -> Iterator[None]:
    """Raise StoreError where a hash is missing: the database is damaged."""
    try:
        yield
    except MissingHash as error:
        raise StoreError(f"the tree that is kept is damaged: {error}") from error


def checkpoint_of(signed: Signed) -> Checkpoint:
    """Return the content of a signed checkpoint. Raises StoreError."""
    try:
        return Checkpoint.from_text(parse(signed.note).text)
    except BadNote as error:
        raise StoreError(f"checkpoint {signed.number} is damaged: {error}") from error
