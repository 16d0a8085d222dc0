"""Files that a download becomes: under their name whole, or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from accountant.client.errors import AccountantError, Body

_BLOCK: Final = 512  # Bytes of a block of a tar archive
_END: Final = bytes(2 * _BLOCK)
_MANIFEST: Final = b"manifest.json\0"
_LONGEST: Final = 2**25  # Bytes of a member


class Incomplete(AccountantError):
    """What came is not what was asked for, or not all of it."""


class Whole:
    """A file at ``path`` that takes its place when it is kept. What is no ordinary file, such as a
    terminal, is written to directly.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder; name a file in it")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {self.path.parent}")
        self._direct = self.path.exists() and not self.path.is_file()
        self._part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        self._stream: IO[bytes] | None = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            with suppress(OSError):  # a full disk was reported when it was written
                self._stream.close()
        if not self._direct:
            self._part.unlink(missing_ok=True)

    def begin(self) -> None:
        """Begin, or begin again after an attempt that broke off. Raise OSError."""
        if self._stream is None:
            self._stream = (self.path if self._direct else self._part).open("wb", buffering=0)
        elif self._size and self._direct:
            raise OSError(f"the answer broke off, and {self.path} cannot be begun again")
        elif self._size:
            self._stream.truncate(0)
            self._stream.seek(0)
        self._size = 0

    def write(self, data: bytes) -> None:
        """Write more. Raise OSError."""
        assert self._stream is not None  # noqa: S101 for the type checker
        rest = memoryview(data)
        while rest:
            written = self._stream.write(rest) or 0
            rest = rest[written:]
        self._size += len(data)

    def keep(self) -> None:
        """Put the file in its place, where it stays when the power goes. Raise OSError."""
        if self._stream is None or self._direct:
            return
        os.fsync(self._stream.fileno())
        self._part.replace(self.path)
        sync(self.path.parent)


class Bundle(Whole):
    """An evidence bundle (docs/evidence.md): a tar archive that begins with its manifest and ends
    with two empty blocks. One that was cut off, or another document, is not kept.
    """

    _head = b""
    _tail = b""

    def begin(self) -> None:
        """Begin, or begin again."""
        super().begin()
        self._head = self._tail = b""

    def write(self, data: bytes) -> None:
        """Write more."""
        super().write(data)
        if len(self._head) < self._wanted():
            self._head += data
        self._tail = (self._tail + data)[-len(_END) :]

    def _wanted(self) -> int:
        """Return how many bytes there are up to the manifest's end, as far as that is known."""
        if len(self._head) < _BLOCK:
            return _BLOCK
        if not self._head.startswith(_MANIFEST):
            return 0
        with suppress(ValueError):
            size = int(self._head[124:135], 8)
            return _BLOCK + size if size <= _LONGEST else 0
        return 0

    def manifest(self) -> Body:
        """Return the manifest of a bundle that came whole. Raise Incomplete."""
        end, manifest = self._wanted(), self._head[_BLOCK:]
        found: Any = None
        if end:
            with suppress(ValueError):
                found = json.loads(manifest[: end - _BLOCK])
        if not isinstance(found, dict) or self._tail != _END or self._size % _BLOCK:
            raise Incomplete("what came is no evidence bundle, or was cut off on its way")
        return found


def sync(folder: Path) -> None:
    """Make the names in a folder last, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
