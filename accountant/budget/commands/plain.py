"""Read the long parts of commands without the models where they are plainly valid.

Most requests ask for one mechanism whose parameters are positive amounts, on a group of named
values. These are read here in a third of the time, with the result of the models, to the byte
(tests/budget/test_plain.py). All others are left to the models, which report errors.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import orjson

from accountant.budget.commands.base import construct
from accountant.budget.population.selection import Range, Term
from accountant.ledger.events import to_keep, written
from accountant.privacy.mechanisms import MOST_INVOCATIONS, PLAIN, Mechanism, plain_amount

_DIMENSION: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_LONGEST_NAME: Final = 200
_ENDS: Final = {"from", "to"}


def mechanisms(data: bytes) -> tuple[list[Mechanism], bytes] | None:
    """Return mechanisms and canonical bytes; None leaves them to the models. Raises ValueError."""
    found = orjson.loads(data)
    if type(found) is not list or len(found) != 1 or type(body := found[0]) is not dict:
        return None
    if not _each_once(data, len(body)):
        return None
    made = _mechanism(body)
    return None if made is None else ([made], to_keep(written(found)))


def _mechanism(body: dict[str, Any]) -> Mechanism | None:
    """Return the mechanism; its amounts in ``body`` get their canonical form."""
    kind = body.get("kind")
    model = PLAIN.get(kind) if type(kind) is str else None
    if model is None:
        return None
    fields: dict[str, Any] = {"kind": kind}
    for name in model.plain:
        value = body.get(name)
        if type(value) is not str or (amount := plain_amount(value)) is None:
            return None
        fields[name], body[name] = Decimal(amount), amount
    if "count" in body:
        count = body["count"]
        if type(count) is not int or not 1 < count <= MOST_INVOCATIONS:
            return None
        fields["count"] = count
    return construct(model, fields) if len(fields) == len(body) else None


def subjects(data: bytes) -> tuple[Term, bytes] | None:
    """Return one term and canonical bytes; None leaves it to the models. Raises ValueError."""
    found = orjson.loads(data)
    if type(found) is not dict or not found:
        return None
    term: Term = {}
    keys = len(found)
    for dimension, values in found.items():
        if not _DIMENSION.fullmatch(dimension):
            return None
        if type(values) is list and values:
            named = values
        elif type(values) is dict and values.keys() == _ENDS:
            named = [values["from"], values["to"]]
            keys += 2
        else:
            return None
        if not all(type(name) is str and 0 < len(name) <= _LONGEST_NAME for name in named):
            return None
        first, last = named[0], named[-1]
        ranged = values is not named
        term[dimension] = construct(Range, {"first": first, "last": last}) if ranged else values
    return (term, to_keep(written(found))) if _each_once(data, keys) else None


def _each_once(data: bytes, keys: int) -> bool:
    """Return whether the ``keys`` that were found are all that ``data`` spells: a parser drops the
    first of two that are alike. Without a backslash no text holds a quote.
    """
    return b"\\" not in data and data.count(b'":') == keys
