"""``accountant …`` in the process of the tests: starting one costs a second of processor time.

What a process is the point of starts one: test_loading.py, kills and races in test_import.py.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import NamedTuple

import pytest

from accountant.cli import common, main


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def accountant(*words: str, stdin: str = "", width: int = 200, **environment: str) -> Said:
    """Runs a command, with variables of its environment, on a terminal of ``width`` characters."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["accountant", *words])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        for console in (common.out, common.errors):
            patch.setattr(console, "_width", width)
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    code = ended.value.code
    return Said(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
