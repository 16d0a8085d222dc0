"""The service keeps its threads on one core, and leaves them alone where it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from accountant.runtime import cores

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="there is one core, or no call that chooses it",
)
PROGRAM = """
import os, sys, threading, time
from accountant.runtime import cores

def all_cores():
    return {frozenset(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")}

cores._STAY = 2.0
wide = all_cores()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
cores.share_one_core()
deadline = time.monotonic() + 10
while not (len(found := all_cores()) == 1 and len(next(iter(found))) == 1):
    assert time.monotonic() < deadline, found
    time.sleep(0.01)
late = threading.Thread(target=lambda: print(len(os.sched_getaffinity(0))))
late.start()
late.join()
while all_cores() != wide:  # the core is chosen again
    assert time.monotonic() < deadline, all_cores()
    time.sleep(0.01)
"""


def test_all_threads_share_a_core_which_is_chosen_again() -> None:
    """Threads that are there and later ones run on one core, until it is chosen again."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_system_that_forbids_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused call ends the thread and changes nothing."""

    def refuse(task: int, wanted: object) -> None:
        raise PermissionError

    before = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    cores.share_one_core()
    deadline = time.monotonic() + 10
    while any(thread.name == "cores" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert os.sched_getaffinity(0) == before
