"""The corpus as files: a family is a compressed file, a line of it is a ledger."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
FOLDER: Final = Path(__file__).parent
_SUFFIX: Final = ".jsonl.xz"


def families() -> list[str]:
    """The names of all families."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in FOLDER.glob(f"*{_SUFFIX}"))


def read(family: str, every: int = 1) -> Iterator[Json]:
    """The ledgers of a family, or every second, say, from the first on: ``name`` and ``steps``."""
    with lzma.open(FOLDER / f"{family}{_SUFFIX}", "rt", encoding="utf-8") as file:
        yield from map(json.loads, islice(file, 0, None, every))


def write(family: str, ledgers: Iterable[Json]) -> int:
    """Writes a family; how many bytes it takes."""
    lines = [json.dumps(ledger, separators=(",", ":")) + "\n" for ledger in ledgers]
    data = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
    (FOLDER / f"{family}{_SUFFIX}").write_bytes(data)
    return len(data)
