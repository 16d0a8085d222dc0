"""Servers in processes of their own, as users run them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx2

PATIENCE: Final = 30.0
"""Seconds that a server may take to start or to stop."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


def processor_seconds(pid: int) -> float:
    """What a process and its children have used of all cores until now, in whole hundredths
    (Linux).
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    own = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(processor_seconds(int(child)) for child in children)


@contextmanager
def process(port: int, log: Path, *command: str) -> Iterator[int]:
    """A Python program that listens on ``port``, ended at the end; its process id."""
    with log.open("wb") as output:
        running = subprocess.Popen(  # noqa: S603 our own program
            [sys.executable, "-m", *command], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            _wait(running, port, log)
            yield running.pid
        finally:
            running.terminate()
            running.wait(PATIENCE)


def _wait(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and running.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"a server did not start: {log.read_text(errors='replace')[-2_000:]}")


@dataclass(frozen=True, slots=True)
class Served:
    """A server, and a key that it takes: of an administrator if it is ``accountant serve``."""

    port: int
    pid: int
    secret: str
    officer: str = ""
    """The key of a second person, who confirms."""

    @property
    def headers(self) -> dict[str, str]:
        """What a request needs."""
        return {"Authorization": f"Bearer {self.secret}"}

    def client(self) -> httpx2.Client:
        """For what is not measured."""
        base = f"http://127.0.0.1:{self.port}"
        return httpx2.Client(base_url=base, headers=self.headers, timeout=PATIENCE)


@contextmanager
def app(name: str, folder: Path, secret: str, *arguments: str) -> Iterator[Served]:
    """One of ``bench.apps``."""
    port = free_port()
    command = ("bench.apps", name, str(port), *arguments)
    with process(port, folder / f"{name}.log", *command) as pid:
        yield Served(port, pid, secret)


@contextmanager
def served(folder: Path, url: str) -> Iterator[Served]:
    """The service on a fresh database. Raises RuntimeError if it cannot use that."""
    secret, officer = made_keys(folder, url)
    with serving(folder, url, secret) as made:
        yield replace(made, officer=officer)


def made_keys(folder: Path, url: str) -> tuple[str, str]:
    """Makes a fresh database, and returns an administrator's key and an officer's. Raises
    RuntimeError if it cannot use that.
    """
    run(folder, url, "migrate")
    secret = run(folder, url, "keys", "create", "--role", "admin", "--name", "bench").strip()
    officer = run(folder, url, "keys", "create", "--role", "officer", "--name", "second").strip()
    return secret, officer


@contextmanager
def serving(folder: Path, url: str, secret: str) -> Iterator[Served]:
    """The service on a database that is there, with a key of it; it may still be reading."""
    port = free_port()
    common = ("accountant", "--home", str(folder), "--database-url", url)
    with process(port, folder / "serve.log", *common, "serve", "--port", str(port)) as pid:
        yield Served(port, pid, secret)


def run(folder: Path, url: str, *arguments: str) -> str:
    """What a command of the service prints. Raises RuntimeError with what it says."""
    command = ["-m", "accountant", "--home", str(folder), "--database-url", url, *arguments]
    done = subprocess.run(  # noqa: S603 our own program
        [sys.executable, *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout
