"""What others build on: the names and shapes that a release promises to keep.

Prose and examples are left out; they may be bettered at any time.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from pydantic.json_schema import models_json_schema
from typer.core import TyperGroup

import accountant.client
import accountant.queries
import accountant.testing
from accountant import cli
from accountant.api.app import create_app
from accountant.api.description.openapi import document
from accountant.api.description.texts import PROBLEMS
from accountant.budget.commands import COMMANDS
from accountant.budget.policy import Policy
from accountant.budget.reading import TYPES
from accountant.client.command_line import parsers
from accountant.client.environment import OF_ADAPTERS, OF_THE_SERVICE, VARIABLES
from accountant.config.settings import Settings
from accountant.reporting.metrics import METRICS
from accountant.store.migrate import _all

ROOT = Path(__file__).resolve().parents[2]
PROSE = {"description", "title", "summary", "examples", "example", "tags", "operationId"}


def surface() -> dict[str, Any]:
    """All of it, as JSON."""
    return {
        "events": sorted(TYPES),
        "commands": commands(),
        "policy": bare(Policy.model_json_schema()),
        "http": http(),
        "problems": {code: problem.status for code, problem in PROBLEMS.items()},
        "settings": sorted({*OF_THE_SERVICE, *VARIABLES, *OF_ADAPTERS}),
        "metrics": {name: [one.kind, *one.labels] for name, one in METRICS.items()},
        "command line": dict(command_line()),
        "client": {
            "accountant.client": dict(names(accountant.client)),
            "accountant.queries": dict(names(accountant.queries)),
            "accountant.testing": dict(names(accountant.testing)),
        },
        "migrations": {one.revision: one.module.phase for one in _all()},
        "evidence": {
            one.name: sha256(one.read_bytes()).hexdigest()
            for one in sorted((ROOT / "tests" / "golden" / "evidence").iterdir())
        },
    }


def bare(schema: Any) -> Any:
    """A JSON Schema without its prose. What is called ``properties`` holds names, none of them
    prose.
    """
    if isinstance(schema, list):
        return [bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: bare(one) for key, one in value.items()}
        if name in ("properties", "$defs", "schemas") and isinstance(value, dict)
        else bare(value)
        for name, value in schema.items()
        if name not in PROSE and not name.startswith("x-")
    }


def commands() -> Any:
    """What stands in events: every command, with what it is made of."""
    kinds: list[tuple[Any, Any]] = [(kind, "validation") for kind in COMMANDS.values()]
    _, schema = models_json_schema(kinds)
    return bare(schema["$defs"])


def http() -> dict[str, Any]:
    """The operations of the API: what each takes and answers, and the schemas of either side."""
    spec = document(create_app(None, Settings(), None))
    takes: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    for path, methods in spec["paths"].items():
        for method, one in methods.items():
            name = f"{method.upper()} {path}"
            by_name = {f"{each['in']} {each['name']}": each for each in one.get("parameters", ())}
            takes[name] = bare({"parameters": by_name, "body": one.get("requestBody", {})})
            answers[name] = bare(one["responses"])
    schemas = bare(spec["components"]["schemas"])
    return {
        "takes": takes,
        "answers": answers,
        "schemas taken": dict(sorted(reached(takes, schemas).items())),
        "schemas answered": dict(sorted(reached(answers, schemas).items())),
    }


def reached(of: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schemas that ``of`` refers to, and those that they refer to."""
    found: dict[str, Any] = {}
    waiting = [of]
    while waiting:
        for name in re.findall(r"#/components/schemas/(\w+)", json.dumps(waiting.pop())):
            if name not in found:
                found[name] = schemas[name]
                waiting.append(schemas[name])
    return found


def command_line() -> Iterator[tuple[str, list[str]]]:
    """Each command, of the service and beside it, and its options."""
    cli.load([])
    yield from _of_typer("accountant", typer.main.get_command(cli.app))
    for command, options in parsers.parser()._subparsers._group_actions[0].choices.items():  # type: ignore[union-attr, attr-defined]
        words = {word for one in options._actions for word in one.option_strings}
        yield f"accountant {command} (asks a service)", sorted(words - {"-h", "--help"})


def _of_typer(path: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    words = {word for one in command.params for word in (*one.opts, *one.secondary_opts)}
    yield path, sorted(word for word in words if word.startswith("-"))
    if isinstance(command, TyperGroup):
        for name, one in command.commands.items():
            yield from _of_typer(f"{path} {name}", one)


def names(module: ModuleType) -> Iterator[tuple[str, list[str]]]:
    """What a module offers; of a class its methods, each with its parameters."""
    for name in module.__all__:
        found = getattr(module, name)
        if inspect.isclass(found):
            for method, function in inspect.getmembers(found, inspect.isroutine):
                if not method.startswith("_") and method in _written(found):
                    yield f"{name}.{method}", list(inspect.signature(function).parameters)
        elif inspect.isroutine(found):
            yield name, list(inspect.signature(found).parameters)
        else:
            yield name, []


def _written(of: type) -> set[str]:
    """The names that classes of this project give it."""
    return {
        name for one in of.__mro__ if one.__module__.startswith("accountant.") for name in vars(one)
    }
