"""Read the commands that events hold, as ``command_from_json`` does, but many times as fast for the
commands that ledgers are full of.

Mechanisms and subject groups, the long parts, are read once and remembered by their bytes. What is
not plainly in canonical form is left to the models, which say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from accountant.budget.commands import (
    DEFAULT_TTL,
    AskGrant,
    CommitGrant,
    ExpireGrant,
    RecordInvocations,
    ReleaseGrant,
    plain,
)
from accountant.budget.commands.base import (
    DAY,
    STORED,
    Command,
    Mechanisms,
    Sealed,
    SubjectsField,
    construct,
)
from accountant.budget.commands.parts import Parts

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_TEXT: Final = 2_000


class _Odd(Exception):
    """A part is not plainly in canonical form."""


def _part(
    adapter: TypeAdapter[Any], plainly: Callable[[bytes], tuple[Any, bytes] | None]
) -> Callable[[bytes], tuple[Any, bytes]]:
    """Return a reader of a part's bytes. It raises _Odd unless they are its canonical form."""

    def read(data: bytes) -> tuple[Any, bytes]:
        if (found := plainly(data)) is not None and found[1] == data:
            return found
        try:
            found = adapter.validate_python(orjson.loads(data), context=STORED)
        except ValidationError:
            raise _Odd from None
        again = adapter.dump_python(found, mode="json", by_alias=True, exclude_defaults=True)
        if orjson.dumps(again, option=orjson.OPT_SORT_KEYS) != data:
            raise _Odd
        return found, b""

    return read


_MECHANISMS: Final = Parts(_part(TypeAdapter(Mechanisms), plain.mechanisms))
_GROUPS: Final[TypeAdapter[Any]] = TypeAdapter(SubjectsField)
_SUBJECTS: Final = Parts(_part(_GROUPS, plain.subjects))


def read_subjects(document: Any) -> Any:
    """Return the subject group of an event's command. Raises ValueError if it is malformed."""
    try:
        return _SUBJECTS.get(orjson.dumps(document))[0]
    except _Odd:
        return _GROUPS.validate_python(document, context=STORED)


def _mechanisms(value: Any) -> Any:
    return _MECHANISMS.get(orjson.dumps(value))[0]


def _subjects(value: Any) -> Any:
    return _SUBJECTS.get(orjson.dumps(value))[0]


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _Odd
    return value


def _name(value: Any) -> str:
    if not _NAME.fullmatch(name := _string(value)):
        raise _Odd
    return name


def _text(value: Any) -> str | Sealed:
    if type(value) is dict and len(value) == 1 and type(digest := value.get("sealed")) is str:
        if _DIGEST.fullmatch(digest):
            return construct(Sealed, {"sealed": digest})
    elif type(value) is str and 0 < len(value) <= _MOST_TEXT:
        return value
    raise _Odd


def _seconds(value: Any) -> int:
    if type(value) is not int or not 0 < value <= 30 * DAY or value == DEFAULT_TTL:
        raise _Odd
    return value


_JUDGED: Final[dict[str, Callable[[Any], Any]]] = {
    "dataset": _name,
    "mechanisms": _mechanisms,
    "subjects": _subjects,
    "purpose": _text,
    "justification": _text,
}
_FIELDS: Final[dict[type[Command], dict[str, Callable[[Any], Any]]]] = {
    AskGrant: _JUDGED | {"ttl_seconds": _seconds},
    RecordInvocations: _JUDGED,
    CommitGrant: {"grant": _string, "mechanisms": _mechanisms},
    ReleaseGrant: {"grant": _string, "reason": _text},
    ExpireGrant: {"grant": _string},
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


def read_plain(document: Mapping[str, Any]) -> Command | None:
    """Return the command that ``document`` holds; None if it is not plainly in canonical form."""
    name = document.get("type")
    known = _PLAIN.get(name) if isinstance(name, str) else None
    if known is None:
        return None
    kind, readers, required = known
    try:
        found = {name: readers[name](part) for name, part in document.items() if name != "type"}
    except (_Odd, KeyError, TypeError):
        return None
    return construct(kind, found) if found.keys() >= required else None
