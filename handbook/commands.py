"""The page of all commands with their options, from the parsers that read them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import typer

from accountant import cli
from accountant.client.command_line.parsers import BESIDE_THE_DATABASE, COMMANDS

_FIRST: Final = """# Every command and its options

`accountant <command> --help` says the same. [Command line](command-line.md) says what the commands
are for, and where each runs.

Options of the program itself stand before the command: `accountant --home folder migrate`.
"""
_BESIDE: Final = "Beside the database:"
_AFAR: Final = "Asking a service, at `ACCOUNTANT_URL`:"


@dataclass(frozen=True)
class Option:
    """An option, or an argument, of a command."""

    names: tuple[str, ...]
    says: str
    required: bool
    default: str


@dataclass(frozen=True)
class Form:
    """A command in one of the two programs: beside the database, or asking a service."""

    name: str
    says: str
    options: list[Option]


def commands() -> dict[str, list[Form]]:
    """Return all commands by name, such as ``keys create``; those that both programs have twice.
    The program itself has the name ``""``.
    """
    cli.load([])
    found = {form.name: [form] for form in _of_typer(typer.main.get_command(cli.app), "")}
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"accountant {name}", add_help=False)
        command.options(parser)
        said = f"{command.summary}\n\n{parser.description or ''}".strip()
        form = Form(name, said, [_of_argparse(action) for action in parser._actions])
        found[name] = [*found[name], form] if name in BESIDE_THE_DATABASE else [form]
    return dict(sorted(found.items()))


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_FIRST, *(line for forms in commands().values() for line in _shown(forms))])


def _of_typer(command: Any, name: str) -> Iterator[Form]:
    """Return a command of typer and those below it, which have options of their own."""
    below = getattr(command, "commands", {})
    if not below or command.params:
        options = [
            Option(
                tuple(one.opts) if one.param_type_name == "option" else (one.name.upper(),),
                one.help or "",
                one.required,
                "" if one.default in (None, False) or one.required else str(one.default),
            )
            for one in command.params
        ]
        yield Form(name, (command.help or "").strip(), options)
    for word, further in below.items():
        yield from _of_typer(further, f"{name} {word}".strip())


def _of_argparse(action: argparse.Action) -> Option:
    names = tuple(action.option_strings) or (str(action.metavar or action.dest).upper(),)
    says = action.help or " or ".join(f"`{one}`" for one in action.choices or ())
    needed = action.required if action.option_strings else action.nargs != "?"
    return Option(names, says, needed, "")


def _shown(forms: list[Form]) -> Iterator[str]:
    name = forms[0].name
    yield f"\n## `accountant {name}`\n" if name else "\n## Options of the program\n"
    if not name:
        yield from _table(forms[0].options)
        return
    yield f"{_prose(forms[0].says)}\n"
    for form, where in zip(forms, (_BESIDE, _AFAR), strict=False):
        if len(forms) > 1:
            yield f"{where}\n"
        yield from _table(form.options)


def _table(options: list[Option]) -> Iterator[str]:
    if not options:
        yield "It has no options.\n"
        return
    yield "| option | what it does |\n|---|---|"
    for one in options:
        names = ", ".join(f"`{name}`" for name in one.names)
        needed = " Required." if one.required else ""
        default = f" Default: `{one.default}`." if one.default else ""
        yield f"| {names} | {_sentence(one.says)}{needed}{default} |"
    yield ""


def _sentence(text: str) -> str:
    """Return a help text as a sentence that may stand in a cell."""
    text = _prose(text).replace("|", "\\|")
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…")) else ".")


def _prose(text: str) -> str:
    """Return a help text as Markdown: options are code, and words in angle brackets no markup."""
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)", r"`\1`", text.replace("<", "\\<"))
