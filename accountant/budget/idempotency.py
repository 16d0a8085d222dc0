"""The idempotency index: the event that answered a key, in 40 bytes a key and a hash table.

A million answers take some 60 MB of memory; a dictionary would take 300.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Final

import numpy as np

from accountant.budget.columns import Take, growing, raw

DIGEST: Final = 16
"""Bytes kept of a digest: two keys with the same 128 bits cannot be found."""

_FREE: Final = 0
_LEAST: Final = 16
"""Places of an empty table."""


class IdempotencyIndex:
    """Maps (client, key) to (fingerprint of the command, sequence of the event)."""

    def __init__(self) -> None:
        self._names = bytearray()
        self._prints = bytearray()
        self._sequences = array("q")
        # Open addressing: a place holds the number of an entry, from 1 on; half of them are free.
        self._places = array("I", bytes(4 * _LEAST))
        self._found = b"", -1, 0
        """The name that was looked up last, when so many answers were there, and its place: what is
        asked is looked up, and put once it is decided."""

    def __len__(self) -> int:
        return len(self._sequences)

    def get(self, by: str, key: str) -> tuple[bytes, int] | None:
        """Return the fingerprint and the sequence of the answer, or None."""
        number = self._places[self._find(_name(by, key))]
        if number == _FREE:
            return None
        at = (number - 1) * DIGEST
        return bytes(self._prints[at : at + DIGEST]), self._sequences[number - 1]

    def put(self, by: str, key: str, fingerprint: bytes, sequence: int) -> None:
        """Put an answer; it replaces an earlier one of the same client and key."""
        name = _name(by, key)
        place = self._find(name)
        if number := self._places[place]:
            at = (number - 1) * DIGEST
            self._prints[at : at + DIGEST] = fingerprint[:DIGEST]
            self._sequences[number - 1] = sequence
            return
        self._names += name
        self._prints += fingerprint[:DIGEST]
        self._sequences.append(sequence)
        self._places[place] = count = len(self._sequences)
        if 2 * count > len(self._places):
            self._place_all()

    def take_back(self, count: int) -> None:
        """Remove all but the first ``count`` answers."""
        for number in range(len(self), count, -1):
            self._free(self._find(bytes(self._names[-DIGEST:])))
            del self._names[-DIGEST:], self._prints[-DIGEST:], self._sequences[number - 1 :]
        if len(self._places) > _places_for(count):
            self._place_all()

    def _free(self, place: int) -> None:
        """Free a place and close the gap (Knuth, Art of Computer Programming 3, 6.4, R)."""
        self._found = b"", -1, 0
        places, mask = self._places, len(self._places) - 1
        at = place
        while number := places[at := (at + 1) & mask]:
            name = (number - 1) * DIGEST
            wanted = int.from_bytes(self._names[name : name + 8], "little") & mask
            if (at - wanted) & mask >= (at - place) & mask:
                places[place], place = number, at
        places[place] = _FREE

    def _find(self, name: bytes) -> int:
        """Return the place of ``name``, or the free one that it would take."""
        last, count, place = self._found
        if last is name and count == len(self._sequences):
            return place
        names, places, mask = self._names, self._places, len(self._places) - 1
        place = int.from_bytes(name[:8], "little") & mask
        while number := places[place]:
            at = (number - 1) * DIGEST
            if names[at : at + DIGEST] == name:
                break
            place = (place + 1) & mask
        self._found = name, len(self._sequences), place
        return place

    def _place_all(self) -> None:
        """Rebuild the table: an entry takes the place that its name asks for, or the next."""
        self._found = b"", -1, 0
        places = np.zeros(_places_for(len(self)), dtype=np.uint32)
        mask = len(places) - 1
        at = (np.frombuffer(self._names, dtype="<u8")[::2] & np.uint64(mask)).astype(np.intp)
        left = np.arange(len(at))
        while left.size:
            free = left[places[at[left]] == _FREE]
            places[at[free]] = free + 1
            left = left[places[at[left]] != left + 1]
            at[left] = (at[left] + 1) & mask
        self._places = array("I", places.tobytes())

    def dump(self) -> Iterator[bytes]:
        """Yield all columns, the table too: rebuilding it takes longer than reading it."""
        yield bytes(self._names)
        yield bytes(self._prints)
        yield raw(self._sequences)
        yield raw(self._places)

    @classmethod
    def load(cls, take: Take, count: int) -> IdempotencyIndex:
        """Read ``count`` answers that ``dump`` wrote. Raises ValueError unless all are whole."""
        answers = cls()
        answers._names += take(DIGEST * count)
        answers._prints += take(DIGEST * count)
        answers._sequences = growing(take, "q", count)
        answers._places = growing(take, "I", _places_for(count))
        places = np.asarray(answers._places)
        if places.max() > count or (np.bincount(places, minlength=count + 1)[1:] != 1).any():
            raise ValueError("an answer has no place, or two")
        return answers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdempotencyIndex):
            return NotImplemented
        mine = (self._names, self._prints, self._sequences)
        return mine == (other._names, other._prints, other._sequences)

    __hash__ = None  # type: ignore[assignment] # it changes


def _places_for(count: int) -> int:
    """Return the smallest power of two that leaves half of the places free."""
    return max(_LEAST, 1 << (2 * count - 1).bit_length())


@lru_cache(maxsize=64)  # a key is looked up before it is put
def _name(by: str, key: str) -> bytes:
    # The length keeps two pairs from having one spelling.
    return sha256(f"{len(by)}:{by}{key}".encode("utf-8", "surrogatepass")).digest()[:DIGEST]
