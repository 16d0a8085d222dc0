"""The evidence bundle: a ledger as one file that can be checked offline (docs/evidence.md).

An uncompressed ustar archive of which every byte is determined, headers included, so that the same
ledger gives the same bytes and no byte can change unnoticed.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, Final, NamedTuple

from accountant.ledger.tiles import WIDTH, entries_of, spelled

FORMAT: Final = "accountant-bundle/1"
MANIFEST: Final = "manifest.json"
KEYS: Final = "keys"
CHECKPOINT: Final = "checkpoint"
TOTALS: Final = "totals.json"
BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
_POLICY: Final = re.compile(r"policies/[0-9a-f]{64}\.json")
MAX_MEMBER: Final = 2**25
"""Bytes in a member: an entry bundle has at most 256 x 65,537, its texts about as much."""


def pack_member(number: int) -> str:
    """Return the name of the pack of checkpoints with that number."""
    return f"checkpoints/{spelled(number)}"


def checkpoints_of(pack: bytes) -> list[bytes]:
    """Return the checkpoints in a pack. Raises ValueError unless there are 1 to 256."""
    found = list(islice(entries_of(pack), WIDTH + 1))
    if not 0 < len(found) <= WIDTH:
        raise ValueError(f"a pack has 1 to {WIDTH} checkpoints")
    return found


def policy_member(digest: str) -> str:
    """Return the name of the policy with that digest."""
    return f"policies/{digest}.json"


def texts_member(entries: str) -> str:
    """Return the name of the texts of the entry bundle at the path ``entries``."""
    return entries.replace("tile/entries/", "texts/").partition(".p/")[0]


def header(name: str, size: int) -> bytes:
    """Return the header of a member. Raises ValueError for a name that is no plain ASCII path, or a
    size that readers refuse.
    """
    if not name.isascii() or not name.isprintable() or len(name) > 100:
        raise ValueError(f"{name!r} is no member's name")
    if not 0 <= size <= MAX_MEMBER:
        raise ValueError(f"{name} has {size} bytes, the most is {MAX_MEMBER}")
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii")


def padding(size: int) -> bytes:
    """Return what follows a member's content up to the next block."""
    return bytes(-size % BLOCK)


def write_member(out: IO[bytes], name: str, data: bytes) -> None:
    """Write one member."""
    out.write(header(name, len(data)))
    out.write(data)
    out.write(padding(len(data)))


class Member(NamedTuple):
    """A member, whose content begins ``at``; or, if ``data`` is None, what is wrong at a place."""

    name: str
    data: bytes | None
    problem: str = ""
    at: int = 0


def read_members(stream: IO[bytes]) -> Iterator[Member]:
    """Return every member in order, and every place where the archive is not as it is written.
    After a damaged header, reading goes on at the next block that is a sound one.
    """
    at, lost = 0, False
    while block := stream.read(BLOCK):
        place, at = at, at + len(block)
        if block == END[: len(block)]:
            yield from _ending(block, stream, place)
            return
        found = _parsed(block)
        if found is None:
            if not lost:
                yield Member("", None, f"at byte {place} there is no sound header")
            lost = True
            continue
        lost = False
        name, size = found
        data = stream.read(size)
        pad = stream.read(-size % BLOCK)
        if len(data) < size or len(pad) < -size % BLOCK:
            yield Member(name, None, f"{name} is cut off")
            return
        yield Member(name, data, at=at)
        if pad != padding(size):
            yield Member(name, None, f"the padding after {name} is not zero")
        at += size + len(pad)
    yield Member("", None, "the archive is cut off: it has no end")


def _parsed(block: bytes) -> tuple[str, int] | None:
    """Return name and size, if ``block`` is exactly the header that they make."""
    try:
        name = block[:100].rstrip(b"\0").decode("ascii")
        size = int(block[124:135], 8)
        sound = header(name, size) == block
    except (UnicodeDecodeError, ValueError):
        return None
    return (name, size) if sound else None


def _ending(block: bytes, stream: IO[bytes], at: int) -> Iterator[Member]:
    if block + stream.read(len(END) - len(block)) != END:
        yield Member("", None, f"at byte {at} the archive does not end as it should")
    elif stream.read(1):
        yield Member("", None, f"something follows the archive's end at byte {at + len(END)}")


_SHAPE: Final[dict[str, type]] = {
    "engine": int,
    "entries": dict,
    "files": list,
    "format": str,
    "ledger": str,
    "origin": str,
    "texts": bool,
    "tree": dict,
}


def manifest(document: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` if it has the shape of a manifest. Raises ValueError with the reason."""
    if not isinstance(document, dict) or set(document) != set(_SHAPE):
        raise ValueError(f"its members are not {', '.join(_SHAPE)}")
    for name, kind in _SHAPE.items():
        if type(document[name]) is not kind:
            raise ValueError(f"{name} is of another type")
    if document["format"] != FORMAT:
        raise ValueError(f"it is a {document['format']!r}, this program reads {FORMAT!r}")
    entries, tree = document["entries"], document["tree"]
    numbers = [entries.get("first"), entries.get("count"), tree.get("size")]
    if any(type(n) is not int or not 0 <= n <= 2**40 for n in numbers):
        raise ValueError("entries and tree have whole numbers, of at most 2**40")
    first, end, size = numbers[0], numbers[0] + numbers[1], numbers[2]
    if first % WIDTH or not first < end <= size or (end % WIDTH and end != size):
        raise ValueError("its entries are not whole bundles")
    if len(entries) != 2 or len(tree) != 2 or type(tree.get("root")) is not str:
        raise ValueError("entries and tree have two members each")
    _check_files(document["files"])
    return document


def _check_files(files: list[Any]) -> None:
    for file in files:
        if not isinstance(file, dict) or set(file) != {"path", "sha256", "size"}:
            raise ValueError("files have path, sha256 and size each")
        if type(file["path"]) is not str:
            raise ValueError("a file's path is text")
    names = [file["path"] for file in files]
    packs = sum(name.startswith("checkpoints/") for name in names)
    policies = {name for name in names if _POLICY.fullmatch(name)}
    numbered = map(pack_member, range(packs))
    if not packs or names != [KEYS, CHECKPOINT, TOTALS, *numbered, *sorted(policies)]:
        raise ValueError("its files are not those of a bundle, in order")
