"""The evidence bundle: a ledger as one file that can be checked offline (docs/evidence.md).

An uncompressed ustar archive of which every byte is determined, headers included, so that the same
ledger gives the same bytes and no byte can change unnoticed.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import IO, Annotated, Final, NamedTuple

import msgspec

from accountant.ledger.events import canonical
from accountant.ledger.tiles import WIDTH, spelled, unpack_entries

FORMAT: Final = "accountant-bundle/1"
MANIFEST: Final = "manifest.json"
KEYS: Final = "keys"
CHECKPOINT: Final = "checkpoint"
TOTALS: Final = "totals.json"
BLOCK: Final = 512
END: Final = bytes(2 * BLOCK)
_POLICY: Final = re.compile(r"policies/[0-9a-f]{64}\.json")
MAX_MEMBER: Final = 2**25  # Bytes: an entry bundle has at most 256 x 65,537, its texts as much


def pack_member(number: int) -> str:
    """Return the name of the pack of checkpoints with that number."""
    return f"checkpoints/{spelled(number)}"


def checkpoints_of(pack: bytes) -> list[bytes]:
    """Return the checkpoints in a pack. Raises ValueError unless there are 1 to 256."""
    found = list(islice(unpack_entries(pack), WIDTH + 1))
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
    """Return a member's header. Raises ValueError for a name or size that readers refuse."""
    if not name.isascii() or not name.isprintable() or len(name) > 100:
        raise ValueError(f"{name!r} is no member's name")
    if not 0 <= size <= MAX_MEMBER:
        raise ValueError(f"{name} has {size} bytes, the most is {MAX_MEMBER}")
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT, "ascii")


def write_member(out: IO[bytes], name: str, data: bytes) -> None:
    """Write one member, padded to whole blocks."""
    out.write(header(name, len(data)) + data + bytes(-len(data) % BLOCK))


class Member(NamedTuple):
    """A member; or a problem at some place of the archive."""

    name: str
    data: bytes
    problem: str = ""


def read_members(stream: IO[bytes]) -> Iterator[Member]:
    """Yield every member in order, and every place where the archive is not as it is written.
    After a damaged header, reading goes on at the next block that is a sound one.
    """
    at, lost = 0, False
    while block := stream.read(BLOCK):
        place, at = at, at + len(block)
        if block == END[: len(block)]:
            yield from _ending(block, stream, place)
            return
        before, lost = lost, (found := _parsed(block)) is None
        if found is None:
            if not before:
                yield Member("", b"", f"at byte {place} there is no sound header")
            continue
        name, size = found
        data, pad = stream.read(size), stream.read(-size % BLOCK)
        if len(data) < size or len(pad) < -size % BLOCK:
            yield Member(name, b"", f"{name} is cut off")
            return
        yield Member(name, data)
        if any(pad):
            yield Member(name, b"", f"the padding after {name} is not zero")
        at += size + len(pad)
    yield Member("", b"", "the archive is cut off: it has no end")


def _parsed(block: bytes) -> tuple[str, int] | None:
    """Return name and size, if ``block`` is exactly the header that they make."""
    with suppress(ValueError):
        name, size = block[:100].rstrip(b"\0").decode("ascii"), int(block[124:135], 8)
        return (name, size) if header(name, size) == block else None
    return None


def _ending(block: bytes, stream: IO[bytes], at: int) -> Iterator[Member]:
    if block + stream.read(len(END) - len(block)) != END:
        yield Member("", b"", f"at byte {at} the archive does not end as it should")
    elif stream.read(1):
        yield Member("", b"", f"something follows the archive's end at byte {at + len(END)}")


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member before the tiles, as the manifest has it."""

    path: str
    sha256: str
    size: _Count


class Entries(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The range of the entries that a bundle holds."""

    first: _Count
    count: _Count


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tree of the ledger: its size, and its root in base64."""

    root: str
    size: _Count


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first member of a bundle."""

    engine: int
    entries: Entries
    files: list[File]
    format: str
    ledger: str
    origin: str
    texts: bool
    tree: Head

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read a manifest. Raises ValueError with the reason if it is not sound."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        if found.to_bytes() != data:
            raise ValueError("it is not canonical")
        if found.format != FORMAT:
            raise ValueError(f"it is a {found.format!r}, this program reads {FORMAT!r}")
        first, size = found.entries.first, found.tree.size
        end = first + found.entries.count
        if first % WIDTH or not first < end <= size or (end % WIDTH and end != size):
            raise ValueError("its entries are not whole bundles")
        names = found.names
        policies = {name for name in names if _POLICY.fullmatch(name)}
        numbered = map(pack_member, range(found.packs))
        if not found.packs or names != [KEYS, CHECKPOINT, TOTALS, *numbered, *sorted(policies)]:
            raise ValueError("its files are not those of a bundle, in order")
        return found

    def to_bytes(self) -> bytes:
        """Return its canonical bytes."""
        return canonical(msgspec.to_builtins(self))

    @property
    def names(self) -> list[str]:
        """The names of its files, in order."""
        return [file.path for file in self.files]

    @property
    def packs(self) -> int:
        """The number of packs of checkpoints among its files."""
        return sum(name.startswith("checkpoints/") for name in self.names)
