"""The folder and the processes of a run, which end before it does. ``python -m`` this module is the
command line of ``accountant`` for as long as its parent lives.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx2

PATIENCE: Final = 60.0
"""Seconds to wait for anything before it counts as failed."""
README: Final = "README.txt"
AUDIT: Final = "audit"
_SIGNATURE: Final = "This folder was written by `python -m examples.survey`."
_TEXT: Final = f"""{_SIGNATURE}
Nothing in it is needed by anything else; the whole folder may be deleted. The next run replaces it.

report.html, .json, .csv   the compliance report, for people, programs and spreadsheets
audit/                     what the auditor holds: the ledger's key, a receipt, and the evidence as
                           bundle.tar (forged.tar is the same with one digit changed); check it:
                           accountant verify bundle.tar --key KEY --checkpoint receipt.tlog-proof
                           python -m accountant.verify_minimal bundle.tar --key KEY
accountant.db              the service's database
vault/                     the keys that the ledger is signed with, and the heads it signed last
logs/service.jsonl         the service's log, one JSON object a line
logs/*.txt                 what each pipeline printed

API keys are not kept here. To look at this ledger through the service again, in this folder:
ACCOUNTANT_HOME=. accountant keys create --role auditor --name me
ACCOUNTANT_HOME=. accountant serve
and beside it, for an address that a browser opens:
ACCOUNTANT_HOME=. accountant signin-link --role auditor --name reader
"""


class DemoFailed(Exception):
    """The demonstration did not go as it must."""


class NotOurs(Exception):
    """The folder holds something that the demonstration did not write."""


def prepare(folder: Path) -> None:
    """Make ``folder`` empty, readable by its owner only. Raise NotOurs, and change nothing, if it
    holds anything but an earlier run.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise NotOurs(f"{folder} is not a folder; choose another place with --out")
    if folder.is_dir() and any(folder.iterdir()):
        readme = folder / README
        if not (readme.is_file() and readme.read_text(errors="replace").startswith(_SIGNATURE)):
            raise NotOurs(f"{folder} holds other files; choose another place with --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in ("logs", AUDIT):
        (folder / name).mkdir()
    (folder / README).write_text(_TEXT)


class Runner:
    """Starts Python modules as processes of this run, which print lines of ``width`` characters."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        """The processes by the file in ``logs`` that has their output."""
        self._environment = os.environ | {
            "ACCOUNTANT_HOME": str(folder),
            "ACCOUNTANT_DATABASE_URL": "",  # the default: in that folder
            "ACCOUNTANT_HOST": "127.0.0.1",
            "ACCOUNTANT_PORT": str(port),
            "ACCOUNTANT_EXPIRY_SECONDS": "0.5",
            "ACCOUNTANT_CHECKPOINT_SECONDS": "1",
            "COLUMNS": str(width),
            "PYTHONIOENCODING": "utf-8",
        }

    def start(self, log: str, *words: str, key: str = "") -> None:
        """Start a module with arguments; its output goes to ``logs/<log>``. Ctrl-C does not reach
        it. A key travels in the environment, which other users cannot read.
        """
        with (self.folder / "logs" / log).open("wb") as output:
            self.running[log] = subprocess.Popen(  # noqa: S603 (our own interpreter and modules)
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self._environment | self._of_a_client(key),
                start_new_session=True,
            )

    def _of_a_client(self, key: str) -> dict[str, str]:
        """Return what a pipeline asks with. The operator's commands work beside the database."""
        return {"ACCOUNTANT_URL": self.url, "ACCOUNTANT_KEY": key} if key else {}

    def finish(self, log: str, expected: int = 0) -> str:
        """Wait for a process to end. Return its output. Raise DemoFailed for another exit code, or
        TimeoutExpired.
        """
        if (code := self.running[log].wait(PATIENCE)) != expected:
            raise DemoFailed(f"logs/{log}: exit code {code}, not {expected}")
        return (self.folder / "logs" / log).read_text(encoding="utf-8", errors="replace").rstrip()

    def command(self, *words: str) -> str:
        """Run `accountant …`. Return its standard output. Raise DemoFailed."""
        done = subprocess.run(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", "accountant", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode != 0:
            reason = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise DemoFailed(f"accountant {' '.join(words)}: {reason}")
        return done.stdout

    @contextmanager
    def service(self) -> Iterator[None]:
        """Run the service; at the end stop it, and with it every process that still runs."""
        log = "service.jsonl"
        try:
            self.start(log, __name__, "serve")
            self._until_ready(self.running[log])
            yield
        finally:
            for process in reversed(self.running.values()):
                _stop(process)
        self.finish(log)

    def _until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(httpx2.TransportError):
                if httpx2.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise DemoFailed("the service did not get ready: logs/service.jsonl says why")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it after ten seconds."""
    with process:  # which at the end closes its pipe and waits
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def end_with_parent() -> None:
    """Terminate this process once the pipe at standard input closes: only the parent holds it."""
    # Not through sys.stdin: its lock, held here, would stop the interpreter from ending.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    from accountant.cli import main

    # While it serves, the door takes the signal itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=end_with_parent, daemon=True).start()
    main()
