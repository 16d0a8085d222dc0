"""What commands log, and when the package for it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).parents[2] / "accountant"
LATE = """
import sys
from accountant.config.logs import {how}, logger
log = logger()
{how}()
early = "structlog" in sys.modules
log.info("seen")
informed = "structlog" in sys.modules
log.warning("heard")
print(early, informed)
"""


def _run(how: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(how=how)], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_a_command_loads_the_logs_when_it_logs() -> None:
    """What only informs loads nothing, as it is not sent; warnings go to standard error."""
    out, error = _run("only_warnings")
    assert out == "False False\n"
    assert "heard" in error
    assert "seen" not in error


def test_a_service_logs_everything_as_json() -> None:
    """Both lines are on standard error, an object each; nothing is on standard output."""
    out, error = _run("configure")
    assert out == "True True\n"
    assert [line[0] + line[-1] for line in error.splitlines()] == ["{}", "{}"]


def test_whatever_commands_import_takes_its_logger_late() -> None:
    """Only the logs' own module and what serves HTTP name structlog: any other would load it with
    each command, and print on standard output before the logs are set.
    """
    named = {
        path.relative_to(ROOM).as_posix()
        for path in ROOM.rglob("*.py")
        if "import structlog" in path.read_text() or "from structlog" in path.read_text()
    }
    allowed = {"config/logs.py", "api/hot.py"}
    assert {name for name in named - allowed if not name.startswith("door/")} == set()
