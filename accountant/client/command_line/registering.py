"""populations: registered from files of names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from accountant.client.command_line.connecting import place_of
from accountant.client.command_line.failures import Misuse
from accountant.client.command_line.output import print_json, show
from accountant.client.registrar import Registrar


def populations(asked: argparse.Namespace, env: Mapping[str, str]) -> int:
    """Register a population, its names in as many requests as it takes."""
    dimensions = {name: _lines(file) for name, file in map(_pair, asked.dimension)}
    terms = {name: getattr(asked, name) for name in ("privacy_unit", "neighbouring", "membership")}
    with Registrar(*place_of(asked, env)) as registrar:
        found = registrar.register(
            **terms, dimensions=dimensions, fixed=dict(map(_pair, asked.fixed)) or None
        )
    if asked.json:
        print_json(found)
    else:
        each = ", ".join(f"{name} ({len(values)})" for name, values in found["dimensions"].items())
        show(f"population {found['population']}: {found['cells']} cells; {each or 'no dimensions'}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    """Return a name, and what stands behind its equals sign. Raise Misuse."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise Misuse(f"{text!r} is no name with a value: write NAME=…")
    return name, value


def _lines(file: str) -> list[str]:
    """Return the lines of a UTF-8 file, without empty ones at its end. Raise Misuse."""
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except UnicodeError:
        raise Misuse(f"{file} is not UTF-8") from None
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}") from None
    while lines and not lines[-1]:
        lines.pop()
    if not lines or "" in lines:
        raise Misuse(f"{file} has {'an empty line' if lines else 'no names'}: write a value a line")
    return lines
