"""What a service writes, recorded with strace: to which file, in which order, and what it said to
others in between.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.faults import attached
from harness.programs import Launcher

CALLS = (
    "openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,"
    "ftruncate,truncate,fallocate,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,"
    "fsync,fdatasync,sync_file_range,sendfile,copy_file_range"
)
"""Everything that changes a file, a name or what somebody else knows."""
_LINE = re.compile(r"(\d+) +(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += +(-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_UNFINISHED, _RESUMED, _NEVER = "<unfinished ...>", "<... ", "= ?"
_SYNCS = ("fsync", "fdatasync")
_PLACE = re.compile(r"^\d+<((?:\\x[0-9a-f]{2})*)>")


@dataclass(frozen=True, slots=True)
class Call:
    """A call to the system as it was made, or, if ``ended``, the moment when it came back. Only
    what synchronises is told apart so: what it makes durable was written before it began.
    """

    name: str
    path: str
    texts: tuple[bytes, ...] = ()
    numbers: tuple[int, ...] = ()
    flags: str = ""
    result: int = 0
    ended: bool = False
    number: int = 0
    """The same for the beginning and the end of one call."""


@contextmanager
def recorded(launcher: Launcher, file: Path) -> Iterator[None]:
    """Records what the launcher's children do. What they do not finish is in the record too."""
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-y", "-xx", "-s", "4000000", "-e", f"trace={CALLS}"),
            *("-o", str(file), "-p", str(launcher.pid)),
        ],
        stderr=subprocess.PIPE,
    )
    try:
        attached(launcher.pid, tracer.pid)
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def read(file: Path) -> list[Call]:
    """The calls that succeeded, in the order in which they began."""
    calls: list[Call | None] = []
    begun: dict[str, tuple[int, str]] = {}
    for process, text in _lines(file):
        place, whole = len(calls), text
        if text.endswith(_UNFINISHED):
            begun[process] = place, text.removesuffix(_UNFINISHED)
            calls.append(None)
            continue
        if text.startswith(_RESUMED):
            place, start = begun.pop(process)
            whole = start + text.split(" resumed>", 1)[1]
        call = _call(whole, place)
        if place == len(calls):
            calls.append(call)
        else:
            calls[place] = call
        if call is not None and call.name in _SYNCS:
            calls.append(Call(call.name, call.path, ended=True, number=place))
    return [call for call in calls if call is not None]


def cut_off(file: Path) -> set[str]:
    """The files of calls that never came back, for their process was killed: nobody can tell
    whether they took place. But for those that synchronise, which change nothing that is read.
    """
    begun: dict[str, str] = {}
    for process, rest in _lines(file):
        if rest.endswith((_UNFINISHED, _NEVER)) and not rest.startswith(_RESUMED):
            begun[process] = rest
        elif not rest.endswith(_NEVER) and not rest.startswith(("+++", "---")):
            begun.pop(process, None)
    files: set[str] = set()
    for rest in begun.values():
        name, _, arguments = rest.partition("(")
        if name not in _SYNCS:
            place = _PLACE.match(arguments)
            names = [place[1]] if place else _TEXT.findall(arguments)
            files |= {_decoded(each).decode() for each in names}
    return files


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Each line's process, and what it did."""
    with file.open() as lines:
        for line in lines:
            if found := _LINE.match(line):
                yield found[1], found[2]


def _call(text: str, place: int) -> Call | None:
    found = _CALL.match(text)
    if found is None or int(found[3]) < 0:
        return None  # it ended in a signal, or failed
    name, arguments, result = found[1], found[2], int(found[3])
    texts = tuple(_decoded(each) for each in _TEXT.findall(arguments))
    file = _PLACE.match(arguments)
    path = _decoded(file[1]).decode() if file else (texts[0].decode() if texts else "")
    rest = _TEXT.sub("", arguments)
    numbers = tuple(int(each) for each in re.findall(r", (\d+)", rest))
    if name == "openat":
        path = texts[0].decode()
    return Call(name, path, texts, numbers, rest, result, number=place)


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
