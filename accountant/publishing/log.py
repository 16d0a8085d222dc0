"""A ledger as a log that any C2SP client reads (tlog-tiles), made from what the store keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import dropwhile

from accountant.budget.errors import NotFound
from accountant.budget.policy import Publication
from accountant.ledger.checkpoints import Receipt
from accountant.ledger.merkle import MissingHash, consistency_proof, includes, inclusion_proof
from accountant.ledger.tiles import Tile, covered, pack_entries
from accountant.store.ledgers import Ledgers, Signed, StoreError


class Log:
    """One ledger's log, read-only. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, ledger: str) -> None:
        self._ledgers = ledgers
        self._ledger = ledger
        self.hashes = partial(ledgers.hashes, ledger)  # (level, first, count)

    def tile(self, tile: Tile, size: int) -> bytes:
        """Return a tile, or entry bundle, of the log at ``size``. Raises NotFound beyond it."""
        level, first, width = tile.level, tile.first, tile.width
        if first + width > covered(level, size):
            raise NotFound("no-such-tile", f"the log of {size} entries has no {tile.path} yet")
        if level is not None:
            data = self.hashes(level, first, width)
        else:
            data = [row.body for row in self._ledgers.read(self._ledger, first, width)]
        if len(data) != width:
            raise NotFound("no-such-tile", f"{tile.path} has holes: the ledger is damaged")
        return pack_entries(data) if level is None else b"".join(data)

    def published(self, publication: Publication, kept: bytes | None) -> Signed | None:
        """Return the last checkpoint ``kept_since`` that enough witnesses have cosigned."""
        for signed in self.kept_since(kept):
            if publication.met_by(name for name, _ in signed.cosignatures):
                return signed
        return None

    def kept_since(self, kept: bytes | None) -> Iterator[Signed]:
        """Yield checkpoints from the one with the note ``kept``, in the vault, back to the first. A
        later one stands in the database only, and after a recovery another could take its place.
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
        """Return the proof that event ``sequence`` is in the log. Raises NotFound if it is not."""
        if not 0 <= sequence < signed.size:
            raise NotFound("unknown-event", f"the log of {signed.size} entries has no {sequence}")
        with complete():
            proof = inclusion_proof(self.hashes, sequence, signed.size)
        leaf = self.hashes(0, sequence, 1)[0]
        if not includes(signed.head.root, signed.size, sequence, leaf, proof):
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
