"""What is printed: plain text for people, JSON for programs, both in UTF-8."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any


def visible(text: str) -> str:
    """Return text from outside in one line and without control characters, for a terminal."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character in "\u200c\u200d":  # joiners of some scripts
        return character
    return " " if character.isspace() else "\ufffd"


def show(*lines: str) -> None:
    """Print lines on standard output. Raise OSError."""
    write_out("".join(f"{visible(line)}\n" for line in lines).encode(errors="replace"))


def print_json(document: Any) -> None:
    """Print a document on standard output. Raise OSError."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    write_out(text.encode(errors="backslashreplace") + b"\n")


def write_out(data: bytes) -> None:
    """Write bytes to standard output. Raise OSError."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def say(text: str) -> None:
    """Print a message on standard error, in one line. Whether it can be read does not matter."""
    with suppress(OSError, ValueError, AttributeError):  # it is full, or closed
        sys.stderr.buffer.write(f"accountant: {visible(text)}\n".encode(errors="replace"))
        sys.stderr.flush()


def table(rows: Iterable[Sequence[str]], right: int) -> list[str]:
    """Return rows as lines with aligned columns, those from number ``right`` on to the right."""
    cells = [[visible(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return ["  ".join(_aligned(row, widths, right)).rstrip() for row in cells]


def _aligned(row: Sequence[str], widths: Sequence[int], right: int) -> list[str]:
    return [
        cell.ljust(width) if i < right else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
