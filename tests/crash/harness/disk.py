"""A disk that forgets, when the power goes, what was not synchronised.

What was written to a file before an fsync of it began is there after that has ended. Of what was
written since, any part may be there: whole writes, or pieces of 512 or 4,096 bytes of them, in any
order. A name (made, moved or removed) is there when its folder was synchronised; until then, as
journals keep their order, the first few changes of a folder may be there. Nothing more is promised
by POSIX, whatever a file system may do in practice. The index of a write-ahead log (``-shm``) is
not kept: SQLite makes it anew.
"""

# The random moments are for variety, not for secrecy.

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from harness.tracing import Call

UNKNOWN = ("link", "linkat", "truncate", "fallocate", "writev", "pwritev", "pwritev2", "creat",
           "sync_file_range", "sendfile", "copy_file_range", "rmdir")  # fmt: skip
"""What the model does not know, and nobody here does."""


@dataclass(slots=True)
class Change:
    """Bytes written to a place of a file; with None for them it ends there."""

    place: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Makes the change."""
        if self.data is None:
            missing = self.place - len(content)
            content[self.place :] = bytes(max(0, missing))
            return
        if len(content) < self.place:
            content.extend(bytes(self.place - len(content)))
        content[self.place : self.place + len(self.data)] = self.data

    def pieces(self, size: int) -> list[Change]:
        """What the disk writes at a time, at most ``size`` bytes."""
        if not self.data:
            return [self]
        found, start = [], self.place
        while start < self.place + len(self.data):
            end = min(start - start % size + size, self.place + len(self.data))
            found.append(Change(start, self.data[start - self.place : end - self.place]))
            start = end
        return found


@dataclass(slots=True, eq=False)
class File:
    """What is durable of a file, and what was written since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    at: int = 0
    """Where the next write without a place goes."""

    def synced(self, changes: int) -> None:
        """The first so many changes are durable."""
        for change in self.pending[:changes]:
            change.apply(self.durable)
        del self.pending[:changes]

    def left(self, dice: random.Random | None) -> bytes:
        """What is there when the power comes back: of what was pending, nothing without dice."""
        content = bytearray(self.durable)
        if dice is not None:
            size = dice.choice([512, 4096, 1 << 30])
            likely = dice.choice([0.1, 0.5, 0.9, 1.0])
            for change in self.pending:
                for piece in change.pieces(size):
                    if dice.random() < likely:
                        piece.apply(content)
        return bytes(content)


Name = tuple[str, File | None]
"""A name, and what it stands for from now on."""
FOLDER = File()


@dataclass
class Disk:
    """The files below ``root``, which is there from the beginning."""

    root: Path
    names: dict[str, File] = field(default_factory=dict)
    durable: dict[str, File] = field(default_factory=dict)
    pending: dict[str, list[list[Name]]] = field(default_factory=dict)
    """Per folder, the changes of names that are not durable, in order."""
    _begun: dict[int, tuple[File | None, int]] = field(default_factory=dict)

    def load(self) -> None:
        """Takes over what lies below the root, as durable."""
        for path in sorted(self.root.rglob("*")):
            if not path.name.endswith("-shm"):
                data = FOLDER if path.is_dir() else File(bytearray(path.read_bytes()))
                self.names[str(path)] = self.durable[str(path)] = data

    def do(self, call: Call) -> None:
        """Makes one call."""
        if not self._ours(call.path):
            return
        file = self.names.get(call.path)
        match call.name:
            case "openat":
                self._open(call, file)
            case "mkdir" | "mkdirat":
                self._rename([(call.path, FOLDER)])
            case "rename" | "renameat" | "renameat2":
                old, new = (text.decode() for text in call.texts)
                self._rename([(old, None), (new, self.names[old])])
            case "unlink" | "unlinkat":
                self._rename([(call.path, None)])
            case "pwrite64" | "write" if file is not None:
                place = call.numbers[-1] if call.name == "pwrite64" else file.at
                file.pending.append(Change(place, call.texts[0][: call.result]))
                file.at = place + call.result
            case "ftruncate" if file is not None:
                file.pending.append(Change(call.numbers[-1], None))
            case "fsync" | "fdatasync":
                self._sync(call, file)
            case name:
                assert name not in UNKNOWN, f"the model does not know {call}"

    def _ours(self, path: str) -> bool:
        below = PurePosixPath(path).is_relative_to(self.root)
        return below and not path.endswith(("-shm", " (deleted)"))

    def _open(self, call: Call, file: File | None) -> None:
        if "O_CREAT" in call.flags and file is None:
            self._rename([(call.path, File())])
        elif file is not None:
            file.at = 0
            if "O_TRUNC" in call.flags:
                file.pending.append(Change(0, None))

    def _rename(self, names: list[Name]) -> None:
        folder = str(Path(names[0][0]).parent)
        self.pending.setdefault(folder, []).append(names)
        _apply(self.names, names)

    def _sync(self, call: Call, file: File | None) -> None:
        folder = file is FOLDER or call.path == str(self.root)
        if not call.ended:
            changes = len(
                self.pending.get(call.path, []) if folder else file.pending if file else []
            )
            self._begun[call.number] = (file, changes)
            return
        file, changes = self._begun.pop(call.number)
        if folder:
            waiting = self.pending.get(call.path, [])
            for names in waiting[:changes]:
                _apply(self.durable, names)
            del waiting[:changes]
        elif file is not None:
            file.synced(changes)

    def power_loss(self, to: Path, dice: random.Random | None) -> None:
        """Writes what is there afterwards to ``to``, which stands for the root; what was not
        synchronised is lost altogether without dice.
        """
        names = dict(self.durable)
        for waiting in self.pending.values():
            for change in waiting[: dice.randint(0, len(waiting)) if dice else 0]:
                _apply(names, change)
        for path, file in sorted(names.items()):
            place = to / Path(path).relative_to(self.root)
            if not place.parent.is_dir():
                continue  # its folder is lost, and it with that
            if file is FOLDER:
                place.mkdir(mode=0o700)
            else:
                place.write_bytes(file.left(dice))
                place.chmod(0o600)


def _apply(names: dict[str, File], change: Iterable[Name]) -> None:
    for name, file in change:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file
