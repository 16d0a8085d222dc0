"""The program: reads the command, carries it out, and says in one line what went wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

from accountant.client.command_line.failures import told
from accountant.client.command_line.output import print_json, say
from accountant.client.command_line.parsers import COMMANDS, check_installed, parse
from accountant.client.environment import check_names
from accountant.client.errors import Failed, Refused

_INTERRUPTED: Final = 130  # As shells say of a program that Ctrl-C ended
_SILENT: Final = 2


def main(
    words: Sequence[str], missing: str | None = None, env: Mapping[str, str] = os.environ
) -> int:
    """Carry out a command. Return its exit code. ``missing``: a package without which only these
    commands can be carried out here.
    """
    asked: argparse.Namespace | None = None
    try:
        if missing is not None:
            check_installed(words, missing)
        asked, command = parse(words)
        asked.argv = command
        check_names(env)
        module = import_module(f"accountant.client.command_line.{COMMANDS[asked.command].module}")
        return int(getattr(module, asked.command)(asked, env))
    except SystemExit as end:  # of the help, or the version
        return int(end.code or 0)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # whoever reads has seen enough
        _let_go_of_output()
        return _SILENT
    except Exception as error:  # noqa: BLE001 nobody wants a traceback from a command line
        return _failed(error, asked)


def _failed(error: Exception, asked: argparse.Namespace | None) -> int:
    """Say what is wrong; with ``--json`` print the service's problem document as well."""
    text, code = told(error)
    say(text)
    if isinstance(error, Failed | Refused) and getattr(asked, "json", False):
        with suppress(OSError):
            print_json(error.problem)
    return code


def _let_go_of_output() -> None:
    """Write what is left to nowhere: Python would complain when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
