"""A fast reader of common request bodies.

It accepts a part of what the strict reader (``requests.ask``) accepts, with the same result. For
anything unusual it raises, and the strict reader decides. Mechanisms and subject groups, which are
long, are cut out as bytes; bytes that were read before are not read again.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
import orjson
from pydantic import ConfigDict, TypeAdapter

from accountant.api.strict_json import parse
from accountant.budget.commands import (
    DEFAULT_TTL,
    IDENTIFIER,
    LONGEST_TEXT,
    LONGEST_TTL,
    MOST_ITEMS,
    AskGrant,
    Command,
    CommitGrant,
    Envelope,
    Mechanisms,
    RecordInvocations,
    ReleaseGrant,
    SubjectsField,
    construct,
    decided_in,
    plain,
)
from accountant.budget.commands.plain import Parts
from accountant.ledger.events import canonical, to_keep, written

_NAME: Final = re.compile(IDENTIFIER, re.ASCII)
_PLAIN: Final = re.compile(
    rb'\[\{(?:"[a-z_0-9]+":\s?(?:"[0-9A-Za-z_.+-]{1,60}"|[1-9]\d{0,8}),?\s?)+\}\]', re.ASCII
)
"""One mechanism whose values are words and whole numbers: every JSON parser reads it the same."""
_KEY: Final = re.compile(rb'"([a-z_0-9]+)":', re.ASCII)
_NULL: Final = b"null"


class NotQuickError(Exception):
    """The body is left to the strict reader."""


_Seconds = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_TTL)]


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """A request for budget, its long parts as bytes."""

    dataset: str
    mechanisms: msgspec.Raw
    subjects: msgspec.Raw = msgspec.Raw(b"")
    purpose: str | msgspec.UnsetType | None = msgspec.UNSET
    justification: str | msgspec.UnsetType | None = msgspec.UNSET
    ttl_seconds: _Seconds | msgspec.UnsetType = msgspec.UNSET


class _Ask(_Outline, tag=AskGrant.command, tag_field="type"):
    """A request for budget as an item of a batch."""


class _Record(_Outline, tag=RecordInvocations.command, tag_field="type"):
    """Invocations as an item of a batch."""


class _Commit(
    msgspec.Struct, tag=CommitGrant.command, tag_field="type", forbid_unknown_fields=True
):
    """A commit of all that a grant holds, as an item of a batch."""

    grant: str


class _Release(
    msgspec.Struct, tag=ReleaseGrant.command, tag_field="type", forbid_unknown_fields=True
):
    """A release as an item of a batch."""

    grant: str
    reason: str


_Item = _Ask | _Record | _Commit | _Release


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    """A batch, its items as bytes."""

    items: list[msgspec.Raw]


_OUTLINE: Final = msgspec.json.Decoder(_Outline)
_ITEM: Final[msgspec.json.Decoder[_Item]] = msgspec.json.Decoder(_Item)
_BATCH: Final = msgspec.json.Decoder(_Batch)
_LATER: Final = ConfigDict(defer_build=True)
_MECHANISMS: Final[TypeAdapter[Mechanisms]] = TypeAdapter(Mechanisms, config=_LATER)
_SUBJECTS: Final[TypeAdapter[SubjectsField]] = TypeAdapter(SubjectsField, config=_LATER)


class Quick:
    """The reader. Thread-safe: bytes that two threads read at once are read twice."""

    def __init__(self) -> None:
        self._mechanisms = Parts(_read_mechanisms)
        self._subjects = Parts(_read_subjects)

    def one(self, kind: type[Command], by: str, body: bytes, key: str | None) -> Envelope:
        """Return the command of ``by``. On any exception the strict reader takes the body."""
        return self._asked(kind, by, body, _OUTLINE.decode(body), key)

    def batch(self, by: str, body: bytes) -> tuple[list[Envelope], list[int]]:
        """Return the items of a batch and their places, in the order of deciding, or raise."""
        items = _BATCH.decode(body).items
        if b"\\" in body or body.count(b'"items"') > 1 or not 1 <= len(items) <= MOST_ITEMS:
            raise NotQuickError
        asked = [self._item(by, bytes(item)) for item in items]
        order = decided_in([one.command for one in asked])
        return [asked[place] for place in order], order

    def _item(self, by: str, body: bytes) -> Envelope:
        if body.count(b'"type"') > 1:
            raise NotQuickError
        item = _ITEM.decode(body)
        if isinstance(item, _Outline):
            kind = AskGrant if isinstance(item, _Ask) else RecordInvocations
            return self._asked(kind, by, body, item, None)
        if body.count(b'"grant"') > 1 or body.count(b'"reason"') > 1:
            raise NotQuickError
        grant = _sound(item.grant)
        if isinstance(item, _Commit):
            return Envelope(by, CommitGrant.model_construct(grant=grant))
        return Envelope(by, ReleaseGrant.model_construct(grant=grant, reason=_sound(item.reason)))

    def _asked(
        self, kind: type[Command], by: str, body: bytes, outline: _Outline, key: str | None
    ) -> Envelope:
        mechanisms, subjects = bytes(outline.mechanisms), bytes(outline.subjects)
        if not _each_once(body, outline) or not _NAME.fullmatch(outline.dataset):
            raise NotQuickError
        found, spelled = self._mechanisms.get(mechanisms)
        fields: dict[str, Any] = {"dataset": outline.dataset, "mechanisms": found}
        document: dict[str, Any] = {
            "type": kind.command,
            "dataset": outline.dataset,
            "mechanisms": orjson.Fragment(spelled),
        }
        if subjects and subjects != _NULL:
            fields["subjects"], group = self._subjects.get(subjects)
            document["subjects"] = orjson.Fragment(group)
        for name in ("purpose", "justification"):
            if isinstance(text := getattr(outline, name), str):
                fields[name] = document[name] = _sound(text)
        if (seconds := outline.ttl_seconds) is not msgspec.UNSET:
            if kind is not AskGrant:
                raise NotQuickError
            fields["ttl_seconds"] = seconds
            if seconds != DEFAULT_TTL:
                document["ttl_seconds"] = seconds
        return Envelope(by, construct(kind, fields), key, sound=True, shown=document)


def _each_once(body: bytes, outline: _Outline) -> bool:
    """Return whether ``body`` spells each key of ``outline`` once: msgspec takes the last of two
    that are alike. Without a backslash every quote is the end of a key or a text.
    """
    mechanisms, subjects = bytes(outline.mechanisms), bytes(outline.subjects)
    quotes = 6 + mechanisms.count(b'"') + subjects.count(b'"')  # two keys and a name, at least
    quotes += 2 * bool(subjects) + 2 * (outline.ttl_seconds is not msgspec.UNSET)
    for text in (outline.purpose, outline.justification):
        if text is not msgspec.UNSET:
            quotes += 2 if text is None else 4
    if isinstance(outline, _Ask | _Record):
        quotes += 4  # the type, and its name
    return b"\\" not in body and body.count(b'"') == quotes


def _read_mechanisms(data: bytes) -> tuple[Any, bytes]:
    if (plainly := plain.mechanisms(data)) is not None:
        return plainly
    keys = _KEY.findall(data)
    if _PLAIN.fullmatch(data) and len(keys) == len(set(keys)):
        mechanisms = _MECHANISMS.validate_json(data)
    else:
        mechanisms = _MECHANISMS.validate_python(parse(data))
    return mechanisms, to_keep(written(_dumped(_MECHANISMS, mechanisms)))


def _read_subjects(data: bytes) -> tuple[Any, bytes]:
    if (plainly := plain.subjects(data)) is not None:
        return plainly
    subjects = _SUBJECTS.validate_python(parse(data))
    return subjects, to_keep(canonical(_dumped(_SUBJECTS, subjects)))


def _dumped(adapter: TypeAdapter[Any], value: Any) -> Any:
    return adapter.dump_python(value, mode="json", by_alias=True, exclude_defaults=True)


def _sound(text: str) -> str:
    if not 0 < len(text) <= LONGEST_TEXT or "\x00" in text:
        raise NotQuickError
    return text
