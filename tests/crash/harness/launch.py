"""Runs ``accountant`` in forks of one process that has imported it: the same program, without two
seconds of imports at each start. What the service imports when it serves is there as well.

Reads orders, a line of JSON each, and answers each with a line: ``start`` with the process id,
``wait`` with the exit code (minus the signal's number if one ended it). Four things are changed in
a child that asks for it, because no setting of the product should exist for them: the clock, moved
by as many seconds as the file CRASH_CLOCK says, the safety of the database's commits, and how often
snapshots are made and SQLite's log is copied, so that short lives have some.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3.dbapi2
import sys
import time
from pathlib import Path
from typing import Any

import accountant.api.app
import accountant.api.hot
import accountant.cli
import accountant.console.app
import accountant.door.server
import accountant.jobs
import accountant.runtime.projections
import accountant.store.backfill
import accountant.store.migrate


def orders() -> None:
    """Obeys until the orders end, then ends what it started. Returns only in a child."""
    children: set[int] = set()
    for number in (signal.SIGINT, signal.SIGTERM):  # what ends the tests ends the orders, too
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            children.discard(order["wait"])
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                become(order)
                return
            children.add(answer)
        print(answer, flush=True)  # noqa: T201 (this is how it answers)
    for child in children:
        os.kill(child, signal.SIGKILL)
    sys.exit(0)


def become(order: dict[str, Any]) -> None:
    """Makes this process what ``accountant`` would be, started afresh."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["accountant", *order["arguments"]]
    if moved := os.environ.get("CRASH_CLOCK"):
        move_clock(Path(moved))
    if level := os.environ.get("CRASH_SYNCHRONOUS"):
        weaken(level)
    if events := os.environ.get("CRASH_SNAPSHOTS"):
        accountant.runtime.projections._WORTH = int(events)
        accountant.jobs._SNAPSHOT_SECONDS = 0.2
    if size := os.environ.get("CRASH_COPIES"):
        accountant.store.backfill._EVERY = int(size)
        accountant.store.backfill._LONG = 200


def move_clock(file: Path) -> None:
    """The wall clock shows as many seconds more as ``file`` says at that moment."""
    real = time.time_ns
    time.time_ns = lambda: real() + int(float(file.read_text()) * 1e9)


def weaken(level: str) -> None:
    """SQLite commits at a lower level of safety than the service asks for."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("synchronous=FULL", f"synchronous={level}"), *more)

    connect = sqlite3.dbapi2.connect

    def weak(*arguments: Any, **named: Any) -> sqlite3.Connection:
        return connect(*arguments, **named, factory=Connection)

    sqlite3.dbapi2.connect = weak


if __name__ == "__main__":
    orders()
    accountant.cli.main()
