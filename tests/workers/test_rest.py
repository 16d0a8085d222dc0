"""How a helper rests, and how it ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
from multiprocessing.connection import Pipe
from threading import Timer
from time import monotonic

import pytest

from accountant.reporting.desk import _Place
from accountant.workers.helpers import Helpers, Parent


def test_a_message_ends_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests for as long as it was told, but not past a question, nor past the end."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ours, theirs = Pipe()
    monkeypatch.setattr(gc, "freeze", lambda: None)
    seldom = map(str, gc.get_threshold())
    monkeypatch.setattr(sys, "argv", ["helper", str(os.dup(theirs.fileno())), *seldom])
    theirs.close()
    parent = Parent()
    begun = monotonic()
    parent.rest(0.02)
    assert monotonic() - begun >= 0.02
    Timer(0.01, ours.send, ["how much?"]).start()
    parent.rest(60)
    assert next(iter(parent)) == "how much?"
    Timer(0.01, ours.close).start()
    parent.rest(60)
    assert list(parent) == []
    assert monotonic() - begun < 30


def test_a_helper_whose_parent_has_ended_says_nothing(
    database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has an answer for nobody, as after a kill of the service, and ends like any other."""
    with Helpers("accountant.reporting.desk", 1) as helpers:
        helpers.post(_Place(database, os.sched_getaffinity(0), None))
        helpers.post(max)
        [helper] = helpers.each
        helper.leave(60)
        assert helper._process.poll() == 0
    assert capfd.readouterr().err == ""
