"""Disks that fail: a small one of its own, full or read-only, and calls that return errors."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.programs import Process


def mountable(folder: Path) -> bool:
    """Whether this process may mount a file system."""
    folder.mkdir(exist_ok=True)
    if _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)).returncode:
        return False
    _unmount(folder)
    return True


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system in memory of that size at ``folder``."""
    folder.mkdir()
    done = _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    assert done.returncode == 0, done.stderr
    try:
        yield folder
    finally:
        _unmount(folder)


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)


@contextmanager
def full(folder: Path, leave: int = 0) -> Iterator[None]:
    """Nothing but ``leave`` bytes is free in the file system of ``folder``."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
        file.truncate(max(0, file.tell() - leave))
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The file system at ``folder`` lets nobody write; nobody may have a file open to write."""
    assert _mount("-o", "remount,ro", str(folder)).returncode == 0
    try:
        yield
    finally:
        assert _mount("-o", "remount,rw", str(folder)).returncode == 0


@contextmanager
def failing(process: Process, calls: str, error: str) -> Iterator[None]:
    """Every one of these calls of the process returns an error, and does nothing."""
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-o", os.devnull, "-e", f"trace={calls}"),
            *("-e", f"inject={calls}:error={error}", "-p", str(process.pid)),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        attached(process.pid, tracer.pid)
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def attached(pid: int, tracer: int) -> None:
    """Waits until all threads of a process are traced."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):  # a thread that has just ended
            tasks = Path(f"/proc/{pid}/task").glob("*/status")
            if all(f"TracerPid:\t{tracer}\n" in task.read_text() for task in tasks):
                return
        time.sleep(0.01)
    raise AssertionError("strace does not attach")
