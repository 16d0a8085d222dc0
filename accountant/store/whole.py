"""Files that appear under their name whole or not at all, and stay there when the power goes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO


@contextmanager
def whole(path: Path, mode: int = 0o666, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` at the end; a power loss tears it unless ``durable``."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
        if durable:
            sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def clear_parts(path: Path, seconds: float) -> None:
    """Remove what processes have left that were killed while they wrote ``path``: parts to which
    nothing was added for so many seconds. Raises OSError.
    """
    for part in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(FileNotFoundError):  # its process has ended, or another one removes it
            if time.time() - part.stat().st_mtime > seconds:
                part.unlink()


def sync(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def made_folder(path: Path, mode: int = 0o777) -> None:
    """Make the folder, if it is not there, and its name durable."""
    with suppress(FileExistsError):
        path.mkdir(mode=mode)
        sync(path.parent)
