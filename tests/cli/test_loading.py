"""What the command line loads: what was asked for, for everybody waits while a service starts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import typer

from accountant.cli import _OPTIONS, COMMANDS, app, load

LOADED = """
import json, sys
from accountant.cli import COMMANDS, load
for words in json.loads(sys.argv[1]):
    for name in COMMANDS:
        sys.modules.pop(f"accountant.cli.{name}", None)
    load(words)
    print(*(name for name in COMMANDS if f"accountant.cli.{name}" in sys.modules))
"""


def loaded(*lines: Sequence[str]) -> list[set[str]]:
    """The modules with commands that a process loads for one command line after the other. The
    first one is loaded into a fresh process, each further one as if these modules were new.
    """
    code = [sys.executable, "-c", LOADED, json.dumps(lines)]
    done = subprocess.run(code, check=True, capture_output=True, text=True)
    return [set(names.split()) for names in done.stdout.splitlines()]


def test_a_command_is_loaded_without_the_others() -> None:
    """A service that starts does not load what makes reports, replays or verifies."""
    lines = [(name, "--port", "0") for name in ("serve", "migrate", "keys")]
    assert loaded(*lines) == [{"serving"}] * 3


FIRST = """
import sys
from accountant.cli import load
load(["serve"])
import accountant.api.hot
print(*sys.modules)
"""


def test_grants_are_answered_before_the_framework_is_loaded() -> None:
    """What answers pipelines needs neither the framework nor what the jobs and reports need."""
    code = [sys.executable, "-c", FIRST]
    found = set(subprocess.run(code, check=True, capture_output=True, text=True).stdout.split())
    assert "accountant.api.hot" in found
    assert not found & {"fastapi", "apscheduler", "alembic", "jinja2", "scipy", "uvicorn"}


ASKED = """
import sys
from accountant.cli import load
load(["preview"])
from accountant.api import views
from accountant.privacy.mechanisms import Mechanism
from accountant.runtime import service
from accountant.store import sqlite
from typing import get_args
ready = [kind.__name__ for kind in get_args(get_args(Mechanism)[0]) if kind.__pydantic_complete__]
print(*sys.modules, *ready)
"""


def test_a_request_beside_the_database_waits_for_nothing_that_it_does_not_need() -> None:
    """What previews a request loads no web framework, no driver of another database, and makes no
    model of a mechanism ready before one is read.
    """
    code = [sys.executable, "-c", ASKED]
    found = set(subprocess.run(code, check=True, capture_output=True, text=True).stdout.split())
    assert "accountant.store.sqlite" in found
    assert not found & {"alembic", "jinja2", "scipy", "starlette"}
    assert not found & {"psycopg", "sqlalchemy.dialects.postgresql"}
    assert not found & {"Laplace", "Gaussian", "Composed", "Declared"}


INTERRUPTED = """
import os, signal, sys
class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
import accountant.__main__
sys.argv[1:1] = ["serve"]
accountant.__main__.main()
"""


@pytest.mark.parametrize("module", ["accountant.cli", "accountant.cli.serving", "sqlalchemy"])
def test_a_command_that_is_interrupted_while_it_is_loaded_ends_without_a_word(module: str) -> None:
    """Who presses Ctrl-C early sees no traceback."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_options_may_stand_before_the_command() -> None:
    """What is the value of an option is no command, whatever it is."""
    options = [("--home", "serve"), ("--home=/x", "--database-url", "fit"), ("--home", "--help")]
    lines = [(*some, "accounts", "--by", "keys") for some in options]
    assert loaded(*lines) == [{"asking"}] * 3


def test_who_names_no_command_sees_all() -> None:
    """The help lists all commands, and a misspelt one is compared with all."""
    lines: list[tuple[str, ...]] = [(), ("--help",), ("serv",), ("--help", "serve"), ("--home",)]
    lines.append(("erse", "--reason", "import"))
    assert loaded(*lines) == [set(COMMANDS)] * 6


def test_every_command_is_found_by_its_name() -> None:
    """The names by which modules are loaded are those that they add, no more and no fewer."""
    load([])
    found: dict[str, set[str]] = {}
    group: Any = typer.main.get_command(app)
    valued = {name for option in group.params if not option.is_flag for name in option.opts}
    assert valued == _OPTIONS
    for name, command in group.commands.items():
        callback = command.callback
        groups = {"alerts": "alerts", "keys": "serving", "policy": "policy"}
        module = groups.get(name) or callback.__module__.rpartition(".")[2]
        found.setdefault(module, set()).add(name)
    assert found == dict(COMMANDS)


def test_help_breaks_where_the_terminal_ends() -> None:
    """A paragraph of help has no line ends: those of the source would stand in it."""
    load([])
    groups, found = [app], list[str]()
    for group in groups:
        found += [command.help or "" for command in group.registered_commands]
        groups += [one.typer_instance for one in group.registered_groups if one.typer_instance]
    assert len(found) > len(COMMANDS)
    assert [text for text in found if not text or "\n" in text.replace("\n\n", "")] == []
