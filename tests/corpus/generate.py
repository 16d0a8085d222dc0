"""Writes the corpus anew: ``python tests/corpus/generate.py [family ...]``.

The same seeds give the same bytes. Nothing but a bound that was found wrong is a reason to do it
(README.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext

import driver
import stored
from author import Author, Json
from families import FAMILIES, author_of, written
from preparing import unsound


def main(names: list[str]) -> None:
    """Writes the named families, or all."""
    for name in names or FAMILIES:
        began = time.perf_counter()
        family = FAMILIES[name]
        with driver.corrected_laplace() if family.profile.corrected else nullcontext():
            size = stored.write(name, _ledgers(name))
        sys.stdout.write(f"{name}: {size:,} bytes, {time.perf_counter() - began:.1f} s\n")


def _ledgers(family: str) -> Iterator[Json]:
    for number in range(FAMILIES[family].ledgers):
        author = author_of(family, number)
        ledger = written(author, number)
        _sound(author)
        yield ledger


def _sound(author: Author) -> None:
    """Raises if the events that were produced do not replay, or lead anywhere else."""
    findings = unsound(author.ledger)
    if findings:
        raise AssertionError(f"{author.name}: {findings[:3]}")


if __name__ == "__main__":
    main(sys.argv[1:])
