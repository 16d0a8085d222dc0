"""Read what an event asks from its bytes, and none of what it answers.

Replay decides the command again. Where that comes to the same bytes, nothing else of the event
needs to be read: every byte of it is then what the decision says. So the sums and comparisons, more
than half of an event, are passed over, and of the command what is long is looked up by its bytes.

What is read here is believed only as far as the command's own spelling goes, which the caller
compares with the event's: of keys that stand twice, of spaces, and of numbers like 1e2 nothing is
left in it. Whatever is not plain is left to ``envelope_of`` (state.py).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from accountant.budget import commands as ask
from accountant.budget.commands.envelopes import Envelope
from accountant.budget.commands.plain import read_fields

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Plain(Struct, forbid_unknown_fields=True, gc=False, tag_field="type"):
    """A command. The types say how its fields are spelled; ``read_fields`` says what is valid."""


class _Judged(_Plain, gc=False):
    dataset: str | list[str]
    mechanisms: Raw
    subjects: Raw | UnsetType = UNSET
    purpose: str | dict[str, str] | UnsetType = UNSET
    justification: str | dict[str, str] | UnsetType = UNSET
    allotment: str | UnsetType = UNSET


class _Ask(_Judged, tag=ask.AskGrant.command, gc=False):
    kind: ClassVar = ask.AskGrant
    ttl_seconds: int | UnsetType = UNSET
    wait: int | UnsetType = UNSET


class _Record(_Judged, tag=ask.RecordInvocations.command, gc=False):
    kind: ClassVar = ask.RecordInvocations


class _Commit(_Plain, tag=ask.CommitGrant.command, gc=False):
    kind: ClassVar = ask.CommitGrant
    grant: str
    mechanisms: Raw | UnsetType = UNSET


class _Release(_Plain, tag=ask.ReleaseGrant.command, gc=False):
    kind: ClassVar = ask.ReleaseGrant
    grant: str
    reason: str | dict[str, str]


class _Expire(_Plain, tag=ask.ExpireGrant.command, gc=False):
    kind: ClassVar = ask.ExpireGrant
    grant: str


class _Event(Struct, gc=False):
    """What is read of an event. All other fields are passed over."""

    by: str
    command: _Ask | _Record | _Commit | _Release | _Expire
    time: Annotated[datetime, Meta(tz=True)]
    key: str | UnsetType = UNSET
    charged_to: str | UnsetType = UNSET


_DECODER: Final = msgspec.json.Decoder(_Event)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def asked_in(data: bytes) -> tuple[Envelope, int] | None:
    """Return the command that an event of bytes ``data`` answers, and its stamp, in microseconds
    since 1970; None if it is not plain. ``canonical`` of the command are the bytes that hold what
    was read, and no others: the caller has to compare them with the event's.
    """
    try:
        # How a text is escaped is for ``canonical`` to say, and what was let charge a part of the
        # population for the answer (facts.py).
        if b"\\" in data or b'"zero_out"' in data:
            return None
        event = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None  # a database may hand out text or nothing at all
    stored = event.command
    if (command := read_fields(stored.kind, stored)) is None:
        return None
    key = None if event.key is UNSET else event.key
    everyone, spelled = event.charged_to == "everyone", _ENCODER.encode(stored)
    asked = Envelope(event.by, command, key, again=True, everyone=everyone, spelled=spelled)
    since = event.time - _EPOCH
    return asked, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
