"""Programs in processes of their own, without the second of imports that a fresh one begins with.

They run in forks of a server that has imported the service (the standard library's forkserver).
Where how a process starts is the point, a test starts an interpreter instead.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

HERE = Path(__file__).parent
SERVICE = "from accountant.__main__ import main; main()"
"""The program ``python -m accountant``."""
_IMPORTED = (
    "accountant.cli",
    "accountant.jobs",
    "accountant.store.migrate",
    "accountant.api.app",
    "accountant.api.hot",
    "accountant.console.app",
    "accountant.door.server",
    "house",
    "forked",
)
"""What the server imports: the service, the house of tests/evidence, and this module."""
_SERVER = {
    "OPENBLAS_NUM_THREADS": "1",  # a fork would lose the others
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "PYTHONPATH": os.pathsep.join(
        map(str, (HERE.parent, HERE, HERE / "evidence", os.environ.get("PYTHONPATH", "")))
    ),
}
"""The environment of the server, for what it imports."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(_IMPORTED))


class Forked:
    """A program that runs, with pipes of text as its input and outputs."""

    def __init__(
        self,
        program: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        errors: Path | None = None,
    ) -> None:
        """Starts ``program``, a text, in the environment of the tests unless another is given. What
        it prints as errors is added to the file ``errors``, if one is given.
        """
        taken, given = _FORKS.Pipe(duplex=False)
        told, tells = _FORKS.Pipe(duplex=False)
        failed, fails = _FORKS.Pipe(duplex=False)
        words = [str(argument) for argument in arguments]
        described = (program, words, dict(os.environ if environment is None else environment))
        self._process = _FORKS.Process(
            target=_become,
            args=(*described, (taken, tells, fails), errors and str(errors)),
            daemon=True,  # it ends with the tests
        )
        with patch.dict(os.environ, _SERVER):
            self._process.start()
        for end in (taken, tells, fails):
            end.close()
        self.stdin = os.fdopen(_owned(given), "w")
        self.stdout = os.fdopen(_owned(told))
        self.stderr = os.fdopen(_owned(failed))

    @property
    def pid(self) -> int:
        """Its number."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code if it has ended; minus the signal's number if one ended it."""
        return self._process.exitcode

    def wait(self, seconds: float = 60) -> int:
        """Its exit code, when it has ended; fails if that takes so long."""
        self._process.join(seconds)
        code = self.poll()
        assert code is not None, f"process {self.pid} runs after {seconds} seconds"
        return code

    def send_signal(self, number: int) -> None:
        """Sends it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, seconds: float = 60) -> tuple[str, str]:
        """What it prints from now on (some kilobytes at most), when it has ended."""
        self.stdin.close()
        said = self.stdout.read(), self.stderr.read()
        self.wait(seconds)
        self.close()
        return said

    def close(self) -> None:
        """Ends it, if it has not ended, and lets go of its pipes."""
        self.kill()
        self._process.join()
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ran(NamedTuple):
    """How a program ended, and what it printed."""

    code: int
    out: str
    err: str


def ran(program: str, *arguments: object, environment: Mapping[str, str] | None = None) -> Ran:
    """Runs a program to its end."""
    with Forked(program, *arguments, environment=environment) as forked:
        said = forked.communicate()
        return Ran(forked.wait(), *said)


def _owned(pipe: Connection) -> int:
    """A descriptor of the same pipe, which is not closed with it."""
    with pipe:
        return os.dup(pipe.fileno())


def _become(
    program: str,
    words: list[str],
    environment: dict[str, str],
    pipes: tuple[Connection, ...],
    errors: str | None,
) -> None:
    """Runs the program in this process, a fork."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    if errors is not None:
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        open(0, closefd=False),  # noqa: SIM115 as an interpreter opens them
        open(1, "w", closefd=False),  # noqa: SIM115
        open(2, "w", closefd=False),  # noqa: SIM115
    )
    running: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "<program>", "exec"), running)  # noqa: S102 a test's own
