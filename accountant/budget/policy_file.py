"""Policy files, read strictly: every error names its line.

All scalars stay text until a field's type reads them, so ``1e-6`` is a number and ``NO`` a country.
Only in a workload, whose mechanisms are those of requests, is ``count: 5`` a whole number and
``monotonic: true`` true. JSON is read by the same parser (it is a subset of YAML).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from accountant.budget.errors import Invalid
from accountant.budget.malformed import MOST, reason
from accountant.budget.policy import Policy

M = TypeVar("M", bound=BaseModel)
Lines = dict[tuple[str | int, ...], int]
"""The line of each part of a document, by its path."""
MAX_DEPTH: Final = 10
MAX_NODES: Final = 20_000
_WHOLE: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_YAML: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(
    ["str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value"]
)


def parse_policy(text: str) -> tuple[Policy, str]:
    """Return the policy, defaults written out, and the text's digest. Raises Invalid."""
    policy = parsed(text, Policy, "workload", _allotments_as_rules)
    return policy.resolved(), sha256(text.encode()).hexdigest()


def _allotments_as_rules(document: Any, lines: Lines) -> None:
    """Move ``allotments``, by name, to the end of the rules, where they are spelled otherwise:
    epsilon and delta are a limit there, and ``of`` is ``part_of``.
    """
    if not isinstance(document, dict) or not isinstance(document.get("allotments"), dict):
        return
    rules = document.get("rules")
    for name, stated in document.pop("allotments").items():
        if not isinstance(rules, list) or not isinstance(stated, dict):
            raise _malformed(
                f"line {lines['allotments', name]}: allotments.{name}: it states epsilon and of, "
                "in a policy with rules"
            )
        amount = {key: stated.pop(key) for key in ("epsilon", "delta") if key in stated}
        rule = {"part_of" if key == "of" else key: value for key, value in stated.items()}
        for path, line in [
            (path, line) for path, line in lines.items() if path[:2] == ("allotments", name)
        ]:
            rest = tuple("part_of" if key == "of" else key for key in path[2:])
            within = ("limit",) if rest[:1] in (("epsilon",), ("delta",)) else ()
            lines["rules", len(rules), *within, *rest] = line
        rules.append(rule | {"id": name, "limit": amount})


def parsed(
    text: str,
    kind: type[M],
    requests: str | None = None,
    spelled: Callable[[Any, Lines], None] = lambda *_: None,
) -> M:
    """Return a document as a model. Scalars below the key ``requests`` are those of requests (all,
    if it is None); ``spelled`` puts what is written in short at length. Raises Invalid, with the
    lines of what is wrong.
    """
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise _malformed(f"{where}{getattr(error, 'problem', None) or error}") from None
    if node is None:
        raise _malformed("line 1: it is empty")
    lines: Lines = {}
    document = _plain(node, (), lines, requests)
    spelled(document, lines)
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)[:MOST]
        raise _malformed("; ".join(_reason(item, lines) for item in found)) from None


def _plain(node: yaml.Node, path: tuple[str | int, ...], lines: Lines, requests: str | None) -> Any:
    """Return the node as dicts, lists and text, and note each path's line. Raises Invalid."""
    lines[path] = node.start_mark.line + 1
    if len(path) > MAX_DEPTH or len(lines) > MAX_NODES:
        raise _malformed(f"line {lines[path]}: it is too large or too deep (aliases count too)")
    if node.tag.removeprefix(_YAML) not in _PLAIN_TAGS:
        raise _malformed(f"line {lines[path]}: the tag {node.tag} has no meaning here")
    if isinstance(node, yaml.ScalarNode):
        return _of_request(node) if requests is None or requests in path else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), lines, requests) for i, item in enumerate(node.value)]
    document: dict[str, Any] = {}
    for key_node, value in node.value:
        key = key_node.value
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise _malformed(f"line {line}: a key must be text")
        if key in document:
            raise _malformed(f"line {line}: the key {key!r} is given twice")
        document[key] = _plain(value, (*path, key), lines, requests)
        lines[(*path, key)] = line
    return document


def _of_request(node: yaml.ScalarNode) -> Any:
    """Return a scalar as JSON would have it."""
    if node.style is not None:  # it is quoted
        return node.value
    if _WHOLE.fullmatch(node.value):
        return int(node.value)
    return {"true": True, "false": False}.get(node.value, node.value)


def _reason(item: Any, lines: Lines) -> str:
    path = tuple(item["loc"])
    prefixes = (path[:n] for n in range(len(path), -1, -1))
    line = next(lines[p] for p in prefixes if p in lines)
    name = ".".join(map(str, path)) or "policy"
    return f"line {line}: {name}: {reason(item)}"


def _malformed(reason: str) -> Invalid:
    return Invalid("malformed-policy", f"the policy cannot be adopted: {reason}")
