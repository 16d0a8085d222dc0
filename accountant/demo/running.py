"""The processes of a run: the service, and whatever talks to it. All end before the run does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2

PATIENCE: Final = 60.0
"""Seconds after which anything that was waited for is taken to have failed."""


class DemoFailed(Exception):
    """The demonstration did not go as it must."""


@dataclass(frozen=True, slots=True)
class Result:
    """A process that has ended: its exit code and what it printed."""

    code: int
    text: str


class Runner:
    """Starts Python modules as processes that know the run's folder and, if it is given, a key.

    ``width`` is the number of characters in a line that they print.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.running: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {
            "ACCOUNTANT_HOME": str(folder),
            "ACCOUNTANT_DATABASE_URL": "",  # the default: in that folder
            "ACCOUNTANT_HOST": "127.0.0.1",
            "ACCOUNTANT_PORT": str(self.port),
            "ACCOUNTANT_EXPIRY_SECONDS": "0.5",
            "ACCOUNTANT_CHECKPOINT_SECONDS": "1",
            "ACCOUNTANT_URL": self.url,
            "COLUMNS": str(width),
            "PYTHONIOENCODING": "utf-8",
        }

    def start(
        self, module: str, *arguments: str, key: str | None = None, log: str
    ) -> subprocess.Popen[bytes]:
        """Starts a module; what it prints goes to ``logs/<log>``. Ctrl-C reaches only us: we stop
        the others in order. A key travels in the environment, which other users cannot read.
        """
        with (self.folder / "logs" / log).open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self._environment | ({"ACCOUNTANT_KEY": key} if key else {}),
                start_new_session=True,
            )
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], log: str) -> Result:
        """Waits for a process and returns what it printed."""
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoFailed(f"a process did not end within {PATIENCE:.0f} s: logs/{log}") from None
        text = (self.folder / "logs" / log).read_text(encoding="utf-8", errors="replace")
        return Result(code, text.rstrip())

    def command(self, *arguments: str) -> str:
        """Runs `accountant …` and returns its standard output. Raises DemoFailed."""
        done = subprocess.run(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "accountant", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            reason = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise DemoFailed(f"accountant {' '.join(arguments)}: {reason}")
        return done.stdout

    @contextmanager
    def service(self) -> Iterator[None]:
        """The service, ready; stopped at the end, and with it everything that still runs."""
        try:
            process = self.start("accountant.demo.tethered", "serve", log="service.jsonl")
            self._until_ready(process)
            yield
        finally:
            for running in reversed(self.running):
                _stop(running)
        if process.returncode != 0:
            raise DemoFailed(f"the service ended with {process.returncode}: logs/service.jsonl")

    def _until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        with httpx2.Client(trust_env=False) as http:
            while time.monotonic() < deadline:
                if process.poll() is not None:
                    raise DemoFailed("the service ended at once: logs/service.jsonl says why")
                with suppress(httpx2.TransportError):
                    if http.get(f"{self.url}/readyz").status_code == 200:
                        return
                time.sleep(0.1)
        raise DemoFailed("the service did not get ready: logs/service.jsonl says why")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the process to end, and insists after ten seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdin:
        process.stdin.close()
