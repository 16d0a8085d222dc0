"""Reads the commands that events hold: ``command_from_json``, many times as fast for those that
ledgers are full of.

What is long in them, mechanisms and subject groups, is read once and remembered by its bytes.
Whatever is not plainly in its canonical form is left to the models, which say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from accountant.budget.commands import plain
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
from accountant.budget.commands.spending import (
    DEFAULT_TTL,
    AskGrant,
    CommitGrant,
    ExpireGrant,
    RecordInvocations,
    ReleaseGrant,
)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOST_TEXT: Final = 2_000


class _Odd(Exception):
    """It is not plainly in canonical form."""


def _part(
    adapter: TypeAdapter[Any], plainly: Callable[[bytes], tuple[Any, bytes] | None]
) -> Callable[[bytes], tuple[Any, bytes]]:
    """Reads a part of a command. Raises _Odd unless the bytes are its canonical form."""

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
_SUBJECTS: Final = Parts(_part(TypeAdapter(SubjectsField), plain.subjects))


def read_plain(document: Mapping[str, Any]) -> Command | None:
    """The command that ``document`` holds in its canonical form; None if that is not plain."""
    kind = document.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return None
    try:
        return reader({name: value for name, value in document.items() if name != "type"})
    except (_Odd, TypeError):
        return None


def _judged(kind: type[AskGrant | RecordInvocations]) -> Callable[[dict[str, Any]], Command]:
    def read(fields: dict[str, Any]) -> Command:
        found: dict[str, Any] = {
            "dataset": _name(fields.pop("dataset", None)),
            "mechanisms": _MECHANISMS.get(orjson.dumps(fields.pop("mechanisms", None)))[0],
        }
        if "subjects" in fields:
            found["subjects"] = _SUBJECTS.get(orjson.dumps(fields.pop("subjects")))[0]
        for name in ("purpose", "justification"):
            if name in fields:
                found[name] = _text(fields.pop(name))
        if kind is AskGrant and "ttl_seconds" in fields:
            found["ttl_seconds"] = _seconds(fields.pop("ttl_seconds"))
        _nothing_more(fields)
        return construct(kind, found)

    return read


def _commit(fields: dict[str, Any]) -> Command:
    found: dict[str, Any] = {"grant": _string(fields.pop("grant", None))}
    if "mechanisms" in fields:
        found["mechanisms"] = _MECHANISMS.get(orjson.dumps(fields.pop("mechanisms")))[0]
    _nothing_more(fields)
    return construct(CommitGrant, found)


def _release(fields: dict[str, Any]) -> Command:
    grant, reason = _string(fields.pop("grant", None)), _text(fields.pop("reason", None))
    _nothing_more(fields)
    return construct(ReleaseGrant, {"grant": grant, "reason": reason})


def _expire(fields: dict[str, Any]) -> Command:
    grant = _string(fields.pop("grant", None))
    _nothing_more(fields)
    return construct(ExpireGrant, {"grant": grant})


_READERS: Final[dict[str, Callable[[dict[str, Any]], Command]]] = {
    AskGrant.command: _judged(AskGrant),
    RecordInvocations.command: _judged(RecordInvocations),
    CommitGrant.command: _commit,
    ReleaseGrant.command: _release,
    ExpireGrant.command: _expire,
}


def _nothing_more(fields: dict[str, Any]) -> None:
    if fields:
        raise _Odd


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _Odd
    return value


def _name(value: Any) -> str:
    if type(value) is not str or not _NAME.fullmatch(value):
        raise _Odd
    return value


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
