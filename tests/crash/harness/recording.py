"""A deployment's life, recorded: what it wrote, and what it said to whom, in order."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import random
import re
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from accountant.auth.keys import LEDGER as KEYS
from harness.checker import stored
from harness.deployment import POPULATION, Deployment
from harness.disk import Disk
from harness.effort import SEED
from harness.pipelines import BROKEN, DATASETS, POLICY, Pipeline, at_work, in_parallel, pipelines
from harness.programs import Launcher
from harness.tracing import Call, cut_off, read, recorded

_ID = re.compile(rb"x-request-id: ([\w:.-]+)", re.IGNORECASE)
_HEAD = re.compile(rb"localhost/%s\n(\d+)\n" % POPULATION.encode())
_SEQUENCE = re.compile(rb'"sequence":(\d+)')


def traceable() -> bool:
    """Whether strace is there and may look at a process."""
    if shutil.which("strace") is None:
        return False
    sleeper = subprocess.Popen(["sleep", "60"])
    tracer = subprocess.Popen(["strace", "-p", str(sleeper.pid)], stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    attached = tracer.poll() is None
    for process in (tracer, sleeper):
        process.kill()
        process.wait()
    return attached


@dataclass
class Told:
    """What others had been told at some moment."""

    requests: set[str]
    """Which requests were answered, by client and key."""
    events: int
    """Up to the largest sequence that an answer named, how many there are."""
    keys: int
    """How many keys had been handed out."""
    published: int
    """The size of the largest checkpoint that was shown."""


@dataclass
class Recording:
    """What happened, in order, and what the ledgers held in the end."""

    disk: Disk
    """As it was before."""
    deployment: Deployment
    clients: list[Pipeline]
    calls: list[Call]
    events: list[bytes]
    keys: list[bytes]
    cut_off: set[str]
    """Files of which nobody can tell what the kill left."""

    def told(self) -> list[tuple[int, Told]]:
        """What had been told, from each moment on at which something was."""
        sequences = {
            f"{client.who}:{request.key}": int(found[1])
            for client in self.clients
            for request in client.requests
            if (found := _SEQUENCE.search(request.answer))
        }
        now, found_at = Told(set(), 0, 0, 0), []
        for place, call in enumerate(self.calls):
            before = now
            for text in call.texts if call.path.startswith("socket:") else ():
                names = {name.decode() for name in _ID.findall(text)}
                ends = [sequences[name] + 1 for name in names if name in sequences]
                sizes = [int(size) for size in _HEAD.findall(text)]
                now = replace(
                    now,
                    requests=now.requests | names,
                    events=max([now.events, *ends]),
                    published=max([now.published, *sizes]),
                )
            if call.path == str(self.deployment.output) and b"acct_" in b"".join(call.texts):
                now = replace(now, keys=now.keys + 1)
            if now != before:
                found_at.append((place, now))
        return found_at


def record(
    made: Deployment, root: Path, launcher: Launcher, seconds: float, **settings: str
) -> Recording:
    """What happens below ``root``: the deployment is made, unless it has keys already, used,
    stopped, used again and killed.
    """
    file = root.with_name(f"{root.name}.record")
    disk = Disk(root)
    disk.load()
    often = settings | {"ACCOUNTANT_CHECKPOINT_SECONDS": "0.15"}
    with recorded(launcher, file):
        if not made.secrets:
            made.set_up()
        clients = pipelines(made, 3, random.Random(SEED))
        with made.serving(**often) as service:
            made.register(service.port, POLICY, *DATASETS)
            _use(made, clients, service.port, seconds)
            service.stop()
        with made.serving(**often) as service:
            _use(made, clients, service.port, seconds)
    copy = shutil.copytree(root / "home", root.with_name(f"{root.name}.copy"))
    url = f"sqlite:///{copy}/accountant.db"  # who reads a database may change its files
    held = stored(url)[0], stored(url, KEYS)[0]
    return Recording(disk, made, clients, read(file), *held, cut_off(file))


def _use(made: Deployment, clients: list[Pipeline], port: int, seconds: float) -> None:
    done = threading.Event()
    [reader] = in_parallel([lambda: _look(made, port, done)])
    with at_work(clients, [port]):
        time.sleep(seconds)
    done.set()
    reader.join()


def _look(made: Deployment, port: int, done: threading.Event) -> None:
    """Somebody reads the published checkpoints."""
    while not done.wait(0.1):
        with suppress(*BROKEN):
            made.call(port, "GET", "/log/checkpoint")
