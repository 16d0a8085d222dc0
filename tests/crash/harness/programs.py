"""Starting ``accountant``: as its users do, or in forks of a process that has imported it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

LAUNCH = Path(__file__).with_name("launch.py")


class Process(Protocol):
    """A process that was started here."""

    pid: int

    def wait(self) -> int:
        """Its exit code, when it has ended; minus the signal's number if one ended it."""


class Starter(Protocol):
    """What starts ``accountant``."""

    def start(self, arguments: Sequence[str], environment: dict[str, str], output: Path) -> Process:
        """Starts it; what it prints is added to ``output``."""


class Plain:
    """Starts it as its users do."""

    def start(self, arguments: Sequence[str], environment: dict[str, str], output: Path) -> Process:
        """Starts a fresh interpreter."""
        with output.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "accountant", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )


@dataclass
class Fork:
    """A process that a launcher started."""

    pid: int
    launcher: Launcher
    code: int | None = None

    def wait(self) -> int:
        """Its exit code, when it has ended."""
        if self.code is None:
            self.code = self.launcher.obey({"wait": self.pid})
        return self.code


class Launcher:
    """Starts it in a fork of one process, which ``before`` may start under a tracer."""

    def __init__(self, *before: str) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*before, sys.executable, str(LAUNCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # none that a fork could lose
        )

    def start(self, arguments: Sequence[str], environment: dict[str, str], output: Path) -> Process:
        """Forks."""
        order = {"arguments": arguments, "environment": environment, "output": str(output)}
        return Fork(self.obey(order), self)

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def obey(self, order: dict[str, object]) -> int:
        """What the launcher answers to an order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """Ends it and what it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def kill(process: Process) -> None:
    """Ends a process without a chance to tidy up, if it has not ended."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
