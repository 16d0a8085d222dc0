"""A helper rests only for as long as nobody asks."""

from __future__ import annotations

import gc
import os
import signal
import sys
from multiprocessing.connection import Pipe
from threading import Timer
from time import monotonic

import pytest

from accountant.workers.helpers import Parent


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
