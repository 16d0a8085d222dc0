"""Random populations, and random subject groups as a ledger holds them."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any, Final

Json = dict[str, Any]
Dimensions = dict[str, list[str]]
_LONGEST: Final = 4_096
"""Bytes of a list of names, beyond which a ledger holds positions."""
_NAMES: Final = ("age", "country", "sex", "week")


def dimensions(rng: Random, sizes: tuple[int, ...]) -> Dimensions:
    """Dimensions of these sizes, by name."""
    names = sorted(rng.sample(_NAMES, len(sizes)))
    return {name: values(name, 0, size) for name, size in zip(names, sizes, strict=True)}


def lengthy(size: int) -> Dimensions:
    """A dimension whose names are so long that one event cannot hold some hundred of them."""
    return {"region": values("region" + "-of-a-very-long-name" * 9, 0, size)}


def more_of(known: list[str], count: int) -> list[str]:
    """Further values of a dimension."""
    return values(known[0].removesuffix("-00000"), len(known), count)


def values(name: str, first: int, count: int) -> list[str]:
    """Values of a dimension, in their declared order."""
    return [f"{name}-{number:05}" for number in range(first, first + count)]


class Groups:
    """Makes subject groups; few of them, so that they come again."""

    def __init__(self, rng: Random, people: Dimensions) -> None:
        self.rng, self.people = rng, people
        self.kept = [self.fresh() for _ in range(6)]

    def some(self, everyone: float) -> Any:
        """A group; None with the probability ``everyone``."""
        if not self.people or self.rng.random() < everyone:
            return None if self.rng.random() < 0.95 else {}
        return self.rng.choice(self.kept) if self.rng.random() < 0.8 else self.fresh()

    def fresh(self) -> Any:
        """A new group: a term, or a union of some that may overlap."""
        if not self.people:
            return None
        rng = self.rng
        if rng.random() < 0.6:
            return self.term()
        terms = [self.term() for _ in range(rng.choice([1, 2, 2, 3, 4]))]
        if rng.random() < 0.5:
            terms.insert(rng.randrange(len(terms) + 1), self.cell())
        if rng.random() < 0.2:
            terms.append(rng.choice(terms))
        return terms

    def cell(self) -> Json:
        """One cell, by name."""
        return {name: [self.rng.choice(known)] for name, known in self.people.items()}

    def term(self) -> Json:
        """Values of some dimensions."""
        chosen = self.rng.sample(sorted(self.people), self.rng.randint(1, len(self.people)))
        return {name: self.side(name) for name in sorted(chosen)}

    def side(self, name: str) -> Any:
        """Values of one dimension: named, a range, or positions where the names would be long."""
        rng, known = self.rng, self.people[name]
        if rng.random() < 0.4:
            first, last = sorted(rng.choices(range(len(known)), k=2))
            return {"from": known[first], "to": known[last]}
        most = len(known) if rng.random() < 0.5 else min(4, len(known))
        start = rng.randrange(most)
        if rng.random() < 0.4:  # without gaps
            return packed(known, list(range(start, rng.randint(start, most - 1) + 1)))
        chosen = rng.sample(range(len(known)), rng.randint(1, most))
        if rng.random() < 0.1:
            chosen.append(chosen[0])
        return packed(known, chosen)


def packed(known: list[str], chosen: list[int]) -> Any:
    """The names at these positions, or the positions themselves where the names are long."""
    names = [known[position] for position in chosen]
    if len(json.dumps(names, separators=(",", ":"))) <= _LONGEST:
        return names
    return spelled(sorted(set(chosen)))


def spelled(positions: list[int]) -> Json:
    """Sorted positions as a ledger spells them: the shorter of bits and gaps."""
    bits = sum(1 << position for position in positions)
    by_bits = bits.to_bytes(positions[-1] // 8 + 1, "little")
    by_gaps, before = b"", -1
    for position in positions:
        by_gaps += _leb128(position - before - 1)
        before = position
    code = "bits" if len(by_bits) <= len(by_gaps) else "gaps"
    data = by_bits if code == "bits" else by_gaps
    return {code: base64.urlsafe_b64encode(data).rstrip(b"=").decode()}


def _leb128(number: int) -> bytes:
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])
