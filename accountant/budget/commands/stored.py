"""Read the commands that events hold, as ``command_from_json`` does, but many times as fast.

Mechanisms and subject groups, the long parts, are read once and remembered by their bytes. Anything
that is not plainly in canonical form is left to the models, which report errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import orjson
from pydantic import TypeAdapter

from accountant.budget import commands as ask
from accountant.budget.commands import base, plain
from accountant.budget.commands.parts import Parts

Reader = Callable[[Any], Any]
"""Reads a field. Raises ValueError, KeyError or TypeError if it is not valid."""


def _field(kind: Any) -> Reader:
    return partial(TypeAdapter(kind).validate_python, context=base.STORED)


def _part(kind: Any, plainly: Callable[[bytes], tuple[Any, bytes] | None]) -> Reader:
    """Return a reader of a long part. It raises ValueError unless the part is in canonical form."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(data: bytes) -> tuple[Any, bytes]:
        if (found := plainly(data)) is not None and found[1] == data:
            return found
        part = adapter.validate_python(orjson.loads(data), context=base.STORED)
        again = adapter.dump_python(part, mode="json", by_alias=True, exclude_defaults=True)
        if orjson.dumps(again, option=orjson.OPT_SORT_KEYS) != data:
            raise ValueError("the part is not in canonical form")
        return part, b""

    parts = Parts(read)
    return lambda value: parts.get(orjson.dumps(value))[0]


_MECHANISMS: Final = _part(base.Mechanisms, plain.mechanisms)
_SUBJECTS: Final = _part(base.SubjectsField, plain.subjects)
_GROUPS: Final[TypeAdapter[Any]] = TypeAdapter(base.SubjectsField)
_JUDGED: Final[dict[str, Reader]] = {
    "dataset": _field(base.Identifier),
    "mechanisms": _MECHANISMS,
    "subjects": _SUBJECTS,
    "purpose": _field(base.FreeText),
    "justification": _field(base.FreeText),
}
_FIELDS: Final[dict[type[base.Command], dict[str, Reader]]] = {
    ask.AskGrant: _JUDGED | {"ttl_seconds": _field(base.Ttl)},
    ask.RecordInvocations: _JUDGED,
    ask.CommitGrant: {"grant": _field(str), "mechanisms": _MECHANISMS},
    ask.ReleaseGrant: {"grant": _field(str), "reason": _field(base.FreeText)},
    ask.ExpireGrant: {"grant": _field(str)},
}
"""The fields that are read here, each with its reader."""
_PLAIN: Final = {
    kind.command: (
        kind,
        fields,
        {name for name, field in kind.model_fields.items() if field.is_required()},
    )
    for kind, fields in _FIELDS.items()
}


def read_plain(document: Mapping[str, Any]) -> base.Command | None:
    """Return the command that ``document`` holds; None if it is not plainly in canonical form."""
    name = document.get("type")
    known = _PLAIN.get(name) if isinstance(name, str) else None
    if known is None:
        return None
    kind, readers, required = known
    try:
        found = {name: readers[name](part) for name, part in document.items() if name != "type"}
    except (ValueError, KeyError, TypeError):
        return None
    plainly = found.get("ttl_seconds") != ask.DEFAULT_TTL and None not in found.values()
    return base.construct(kind, found) if plainly and found.keys() >= required else None


def read_subjects(document: Any) -> Any:
    """Return the subject group of an event's command. Raises ValueError if it is malformed."""
    try:
        return _SUBJECTS(document)
    except ValueError:
        return _GROUPS.validate_python(document, context=base.STORED)
