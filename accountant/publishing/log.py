"""A ledger as a log that any C2SP client reads (tlog-tiles), made from what the store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile

from accountant.budget.custody.publication import Publication
from accountant.budget.errors import NotFound
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.merkle import (
    MissingHash,
    consistency_proof,
    includes,
    inclusion_proof,
)
from accountant.ledger.notes import BadNote, parse
from accountant.ledger.receipts import Receipt
from accountant.ledger.tiles import Tile, pack_entries
from accountant.store.ledgers import Ledgers, Signed, StoreError


class Log:
    """One ledger's log, read-only. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, ledger: str) -> None:
        self._ledgers = ledgers
        self._ledger = ledger

    def hashes(self, level: int, first: int, count: int) -> list[bytes]:
        """Kept hashes of the tree."""
        return self._ledgers.hashes(self._ledger, level, first, count)

    def tile(self, tile: Tile, size: int) -> bytes:
        """A tile, or entry bundle, of the log at ``size``. Raises NotFound beyond it."""
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
        """The last checkpoint that enough witnesses have cosigned, with all that it has; ``kept``
        as in ``kept_since``.
        """
        return next(
            (
                signed
                for signed in self.kept_since(kept)
                if publication.met_by(name for name, _ in signed.cosignatures)
            ),
            None,
        )

    def kept_since(self, kept: bytes | None) -> Iterator[Signed]:
        """Checkpoints back from the note ``kept``, which the vault kept last. What only the
        database knows is shown to nobody: were that put back, another could be signed in its place.
        """
        return dropwhile(lambda signed: signed.note != kept, self.newest())

    def newest(self) -> Iterator[Signed]:
        """Checkpoints from the last back to the first."""
        last = self._ledgers.last_signed(self._ledger)
        number = -1 if last is None else last.number
        while number >= 0:
            first = max(0, number - 63)
            yield from reversed(self._ledgers.signed(self._ledger, first, number + 1))
            number = first - 1

    def receipt(self, sequence: int, signed: Signed) -> Receipt:
        """That event ``sequence`` is in the log, under ``signed``. Raises NotFound if it is not."""
        if not 0 <= sequence < signed.size:
            raise NotFound("unknown-event", f"the log of {signed.size} entries has no {sequence}")
        with complete():
            proof = inclusion_proof(self.hashes, sequence, signed.size)
        leaf = self.hashes(0, sequence, 1)[0]
        if not includes(checkpoint_of(signed).root, signed.size, sequence, leaf, proof):
            raise StoreError(f"the tree that is kept of {self._ledger} is damaged")
        return Receipt(sequence, tuple(proof), signed.full)

    def consistency(self, old: int, new: int) -> list[bytes]:
        """That the log at size ``new`` continues itself at size ``old``."""
        with complete():
            return consistency_proof(self.hashes, old, new)


@contextmanager
def complete() -> Iterator[None]:
    """A hash that is not there is damage of the database."""
    try:
        yield
    except MissingHash as error:
        raise StoreError(f"the tree that is kept is damaged: {error}") from error


def checkpoint_of(signed: Signed) -> Checkpoint:
    """What a signed checkpoint says. Raises StoreError."""
    try:
        return Checkpoint.from_text(parse(signed.note).text)
    except BadNote as error:
        raise StoreError(f"checkpoint {signed.number} is damaged: {error}") from error
