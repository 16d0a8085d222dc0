"""The page of what pipelines import: signatures and docstrings, as they stand in the code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import dedent
from types import ModuleType
from typing import Any, Final

from handbook.catalogue import ROOT

_FIRST: Final = """# Python reference

What pipelines import, as the code documents it. Start with
[ask from a pipeline](../how-to/ask-from-a-pipeline.md), or with
[answer a query](../how-to/answer-a-query.md).
"""
_WIDTH: Final = 84
MODULES: Final = (
    "accountant.client",
    "accountant.client.results",
    "accountant.queries",
    "accountant.testing",
)
"""The modules whose public names are shown."""
_ADAPTERS: Final = ROOT / "accountant/adapters"
_OF_ADAPTERS: Final = """
## Adapters

An adapter needs its library, and says in its first line what it cannot see. How to use them:
[OpenDP](../how-to/opendp.md), [other libraries](../how-to/adapters.md),
[training](../how-to/adapters-training.md), [SQL](../how-to/adapters-sql.md),
[orchestrators](../how-to/orchestrators.md).
"""


def page() -> str:
    """Return the page as Markdown."""
    lines = [_FIRST]
    for name in MODULES:
        module = import_module(name)
        lines += [f"\n## {name}\n", _docstring(module)]
        for public in public_names(module):
            lines += _shown(public, getattr(module, public))
    lines.append(_OF_ADAPTERS)
    for name, docstring in adapters().items():
        lines += [f"\n### `{name}`\n", docstring]
    return "\n".join(lines)


def adapters() -> dict[str, str]:
    """Return what each adapter says of itself, by the name of its module. Its file is read and not
    imported, for that would import its library.
    """
    found = {}
    for path in sorted(_ADAPTERS.glob("[a-z]*")):
        file = path / "__init__.py" if path.is_dir() else path
        text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        if "; cannot see" in text.partition("\n")[0]:
            found[f"accountant.adapters.{path.stem}"] = _markdown(text)
    return found


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module exports, or else the classes and functions that it defines."""
    exported = getattr(module, "__all__", None)
    if exported is None:
        here = {name for name, value in vars(module).items() if _defined_in(module, value)}
        exported = [name for name in here if not name.startswith("_")]
    return sorted(exported, key=str.casefold)


def _defined_in(module: ModuleType, value: Any) -> bool:
    of_code = isinstance(value, type) or inspect.isroutine(value)
    return of_code and getattr(value, "__module__", "") == module.__name__


def methods(kind: type) -> dict[str, Any]:
    """Return the public methods and properties of a class, those that it inherits within this
    project too.
    """
    ours = [one for one in kind.__mro__ if one.__module__.startswith("accountant")]
    named = {name for one in ours for name in vars(one) if not name.startswith("_")}
    found = {name: getattr(kind, name) for name in sorted(named) if hasattr(kind, name)}
    return {name: one for name, one in found.items() if callable(one) or isinstance(one, property)}


def _shown(name: str, value: Any) -> Iterator[str]:
    yield f"\n### `{name}`\n"
    if not isinstance(value, type) and not inspect.isroutine(value):
        yield f"```python\n{name} = {_annotation(value)}\n```\n"
        return
    yield f"```python\n{_signature(name, value)}\n```\n"
    yield _docstring(value)
    if isinstance(value, type):
        for below, method in methods(value).items():
            yield f"\n#### `{name}.{below}`\n"
            yield f"```python\n{_signature(f'{name}.{below}', method)}\n```\n"
            yield _docstring(method)


def _signature(name: str, value: Any) -> str:
    """Return a name with its parameters, one a line if they are long."""
    if isinstance(value, property):
        returns = inspect.get_annotations(value.fget).get("return", "") if value.fget else ""
        return f"{name}: {_annotation(returns)}" if returns else name
    prefix = "class " if isinstance(value, type) else ""
    if inspect.iscoroutinefunction(inspect.unwrap(value)):
        prefix = "await "
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception that takes what Exception takes
        return prefix + name
    parts = list(_parameters(signature))
    returns = signature.return_annotation
    said = returns is not inspect.Signature.empty and not isinstance(value, type)
    end = f" -> {_annotation(returns)}" if said else ""
    line = f"{prefix}{name}({', '.join(parts)}){end}"
    if len(line) <= _WIDTH:
        return line
    inside = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{name}(\n{inside}){end}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """Yield the parameters as they are written in a definition, but for that of the object."""
    marked = False
    for name, one in signature.parameters.items():
        if name in ("self", "cls"):
            continue
        if one.kind is one.VAR_POSITIONAL:
            marked = True
        elif one.kind is one.KEYWORD_ONLY and not marked:
            marked = True
            yield "*"
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(one.kind.name, "")
        typed = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        equals = " = " if typed else "="
        default = "" if one.default is one.empty else f"{equals}{_default(one.default)}"
        yield f"{stars}{name}{typed}{default}"


def _default(value: Any) -> str:
    """Return a default as code. Only plain values are shown: others, such as the environment of the
    process, are not the page's to tell.
    """
    plain = value is None or isinstance(value, str | int | float | tuple)
    return repr(value) if plain else "…"


def _annotation(value: Any) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return re.sub(r"\b(typing|collections\.abc)\.", "", text)


def _docstring(value: Any) -> str:
    return _markdown(inspect.getdoc(value) or "")


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: what follows ``::`` is code."""
    parts = re.split(r"::\n\n((?: {4}.*\n|\n)+)", f"{docstring}\n")
    words = [re.sub(r"(?<=\S)$", ":", one) if one is not parts[-1] else one for one in parts[::2]]
    code = [f"\n\n```python\n{dedent(one).strip()}\n```\n\n" for one in parts[1::2]] + [""]
    return "".join(one.replace("<", "\\<") + two for one, two in zip(words, code, strict=True))
