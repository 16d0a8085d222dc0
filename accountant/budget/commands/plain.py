"""Read commands without the models where they are plainly valid, many times as fast.

Most requests ask for one mechanism whose parameters are positive amounts, on a group of named
values. These long parts are read here in a third of the time, with the result of the models, to the
byte (tests/budget/test_plain.py), and remembered by their bytes (``Parts``). All others are left to
the models, which report errors. ``read_plain`` reads the commands that events hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache, partial
from typing import Annotated, Any, Final

import orjson
from msgspec import UNSET, Raw, Struct
from pydantic import ConfigDict, Field, StrictInt, TypeAdapter

from accountant.budget import commands as ask
from accountant.budget.commands import construct
from accountant.budget.population.selection import Range
from accountant.ledger.events import to_keep, written
from accountant.privacy.mechanisms import MOST_INVOCATIONS, PLAIN, Mechanism, plain_amount

_IDENTIFIER: Final = re.compile(ask.IDENTIFIER, re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
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


def subjects(data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return one term and canonical bytes; None leaves it to the models. Raises ValueError."""
    found = orjson.loads(data)
    if type(found) is not dict or not found:
        return None
    term: dict[str, Any] = {}
    keys = len(found)
    for dimension, values in found.items():
        if not _IDENTIFIER.fullmatch(dimension):
            return None
        if type(values) is list and values:
            named = values
        elif type(values) is dict and values.keys() == _ENDS:
            named = [values["from"], values["to"]]
            keys += 2
        else:
            return None
        if not _are_names(named):
            return None
        first, last = named[0], named[-1]
        ranged = values is not named
        term[dimension] = construct(Range, {"first": first, "last": last}) if ranged else values
    return (term, to_keep(written(found))) if _each_once(data, keys) else None


def _are_names(found: list[Any]) -> bool:
    """Return whether all are texts of 1 to 200 characters."""
    try:
        together = len("".join(found))
    except TypeError:
        return False
    return all(found) and (together <= _LONGEST_NAME or len(max(found, key=len)) <= _LONGEST_NAME)


def _each_once(data: bytes, keys: int) -> bool:
    """Return whether the ``keys`` that were found are all that ``data`` spells: a parser drops the
    first of two that are alike. Without a backslash no text holds a quote.
    """
    return b"\\" not in data and data.count(b'":') == keys


_REMEMBERED: Final = 4_096
_MET: Final = 16_384
"""Hashes of parts that were requested once."""
_LONGEST: Final = 2_048
"""Bytes of a part that is remembered."""


class Listed(list[Any]):
    """Mechanisms or a union of groups. ``memo``: the last result's terms, and the result."""

    memo: tuple[Any, Any] | None = None
    size: int  # in canonical bytes


class Term(dict[str, Any]):
    """A subject group that was read."""

    memo: tuple[Any, Any] | None = None
    size: int


_KINDS: Final[dict[type, Callable[[Any], Any]]] = {list: Listed, dict: Term}


class Parts:
    """Parts by their bytes, which ``read`` parses. Thread-safe.

    A part is remembered from its second request on: most parts are requested once, and keeping them
    would cost as much as reading them again. A part keeps the last result that was derived from it.
    Nothing here is authoritative: forgetting it costs time.
    """

    def __init__(self, read: Callable[[bytes], tuple[Any, bytes]]) -> None:
        self._read = read
        self._known: dict[bytes, tuple[Any, bytes]] = {}
        self._met: set[int] = set()

    def get(self, data: bytes) -> tuple[Any, bytes]:
        """Return the part that ``data`` spells, and its canonical bytes. Raises as ``read``."""
        found = self._known.get(data)
        if found is None:
            part, spelled = self._read(data)
            if kept := _KINDS.get(type(part)):
                part = kept(part)
                part.size = len(spelled)
            found = part, spelled
            if self._met_before(data):
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[bytes(memoryview(data))] = found
        return found

    def _met_before(self, data: bytes) -> bool:
        """Return whether ``data`` was requested before, and note that it is now."""
        if len(data) > _LONGEST:
            return False
        if (mark := hash(data)) in self._met:
            return True
        if len(self._met) >= _MET:
            self._met.clear()
        self._met.add(mark)
        return False


Reader = Callable[[Any], Any]
"""Reads a field. Raises ValueError, KeyError or TypeError if it is not valid."""


def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(defer_build=True))


def _field(kind: Any) -> Reader:
    return partial(_adapter(kind).validate_python, context=ask.STORED)


_FREE_TEXT: Final = _field(ask.FreeText)


def _text(value: Any) -> Any:
    """Return any text. Raises TypeError for another value."""
    if type(value) is not str:
        raise TypeError("it is no text")
    return value


@lru_cache(maxsize=1_024)  # most are the same few
def _name(text: str) -> str:
    """Return an identifier. Raises ValueError for any other text, TypeError for no text."""
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"{text!r} is no identifier")
    return text


def _names(value: Any) -> Any:
    """Return datasets as commands spell them. Raises ValueError or TypeError for anything else."""
    if type(value) is not list:
        return _name(value)
    if not 1 < len(value) <= ask.MOST_JOINED or sorted(set(map(_name, value))) != value:
        raise ValueError("these are not several datasets in order")
    return value


def _free_text(value: Any) -> Any:
    """Return a free text, or its digest."""
    if type(value) is dict and len(value) == 1 and _DIGEST.fullmatch(value["sealed"]):
        return construct(ask.Sealed, value)
    return _FREE_TEXT(value)


def _part(kind: Any, plainly: Callable[[bytes], tuple[Any, bytes] | None]) -> Reader:
    """Return a reader of a long part. It raises ValueError unless the part is in canonical form."""
    adapter = _adapter(kind)

    def read(data: bytes) -> tuple[Any, bytes]:
        if (found := plainly(data)) is not None and found[1] == data:
            return found
        part = adapter.validate_python(orjson.loads(data), context=ask.STORED)
        again = adapter.dump_python(part, mode="json", by_alias=True, exclude_defaults=True)
        if orjson.dumps(again, option=orjson.OPT_SORT_KEYS) != data:
            raise ValueError("the part is not in canonical form")
        return part, data

    parts = Parts(read)
    return lambda value: parts.get(_spelled(value))[0]


def _spelled(value: Any) -> bytes:
    """Return the bytes of a part, as they stand in an event or of what was read of it."""
    return bytes(value) if type(value) is Raw else orjson.dumps(value)


_MECHANISMS: Final = _part(ask.Mechanisms, mechanisms)
_SUBJECTS: Final = _part(ask.SubjectsField, subjects)
_GROUPS: Final = _adapter(ask.SubjectsField)
_LISTS: Final = _adapter(ask.Mechanisms)
_JUDGED: Final[dict[str, Reader]] = {
    "dataset": _names,
    "mechanisms": _MECHANISMS,
    "subjects": _SUBJECTS,
    "purpose": _free_text,
    "justification": _free_text,
    "allotment": _name,
}
_FIELDS: Final[dict[type[ask.Command], dict[str, Reader]]] = {
    ask.AskGrant: _JUDGED
    | {
        "ttl_seconds": _field(ask.Ttl),
        "wait": _field(Annotated[StrictInt, Field(ge=1, le=ask.LONGEST_WAIT)]),
    },
    ask.RecordInvocations: _JUDGED,
    ask.CommitGrant: {"grant": _text, "mechanisms": _MECHANISMS},
    ask.ReleaseGrant: {"grant": _text, "reason": _free_text},
    ask.ExpireGrant: {"grant": _text},
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


def read_plain(document: Mapping[str, Any]) -> ask.Command | None:
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
    return construct(kind, found) if _plainly(found) and found.keys() >= required else None


def read_fields(kind: type[ask.Command], stored: Struct) -> ask.Command | None:
    """Return the command whose fields ``stored`` has, as an event holds them: all that it must
    have, UNSET those that it may leave out. None if it is not plainly in canonical form.
    """
    try:
        found = {
            name: reader(part)
            for name, reader in _FIELDS[kind].items()
            if (part := getattr(stored, name)) is not UNSET
        }
    except (ValueError, KeyError, TypeError):
        return None
    return construct(kind, found) if _plainly(found) else None


def _plainly(found: Mapping[str, Any]) -> bool:
    """Return whether no field states its default, which is canonical only if it is left out."""
    return found.get("ttl_seconds") != ask.DEFAULT_TTL and None not in found.values()


def read_mechanisms(document: Any) -> Any:
    """Return the mechanisms of an event's command. Raises ValueError if they are malformed."""
    try:
        return _MECHANISMS(document)
    except ValueError:
        return _LISTS.validate_python(document, context=ask.STORED)


def read_subjects(stated: Any) -> Any:
    """Return the subject group of an event's command, stated as a document or its bytes (``Raw``).
    Raises ValueError if it is malformed.
    """
    try:
        return _SUBJECTS(stated)
    except ValueError:
        return _GROUPS.validate_python(orjson.loads(_spelled(stated)), context=ask.STORED)
