"""What can be asked of a ledger. Each event holds the command that it answers.

The models are the request bodies of the HTTP door, one schema for the door, the command line and
the ledger. ``to_json`` leaves defaults out: a field added later does not change old commands, and
a field's default never changes (charter, ledger/events.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal

from accountant.budget.commands.base import (
    MOST_PLANS,
    STORED,
    Command,
    FreeText,
    Identifier,
    Mechanisms,
    Sealed,
    SubjectsField,
    Text,
    Ttl,
    read_dp_events,
)
from accountant.budget.commands.batch import (
    ITEMS,
    MOST_ITEMS,
    Batch,
    BatchKind,
    BatchRequest,
    Item,
    alone,
    batch_of,
    decided_in,
    digest_of,
)
from accountant.budget.commands.custody import (
    MAX_CARRIED,
    AcceptTime,
    AdoptEngine,
    AdoptSigningKey,
    CarriedAccount,
    CarryOver,
    EraseText,
    Recover,
    ResumePublication,
    Revalue,
    StopPublication,
)
from accountant.budget.commands.registering import (
    AdoptPolicy,
    ExtendPopulation,
    RegisterDataset,
    RegisterPopulation,
)
from accountant.budget.commands.spending import (
    DEFAULT_TTL,
    AskGrant,
    CloseSparseVector,
    CommitGrant,
    CountAnswers,
    ExpireGrant,
    OpenSparseVector,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.ledger.events import canonical, to_keep, written

__all__ = [
    "COMMANDS",
    "DEFAULT_TTL",
    "ITEMS",
    "MAX_CARRIED",
    "MOST_ITEMS",
    "MOST_PLANS",
    "STORED",
    "AcceptTime",
    "AdoptEngine",
    "AdoptPolicy",
    "AdoptSigningKey",
    "AskGrant",
    "Batch",
    "BatchKind",
    "BatchRequest",
    "CarriedAccount",
    "CarryOver",
    "CloseSparseVector",
    "Command",
    "CommitGrant",
    "CountAnswers",
    "Envelope",
    "EraseText",
    "ExpireGrant",
    "ExtendPopulation",
    "FreeText",
    "Identifier",
    "Item",
    "Mechanisms",
    "OpenSparseVector",
    "RecordInvocations",
    "Recover",
    "RegisterDataset",
    "RegisterPopulation",
    "ReleaseGrant",
    "ResumePublication",
    "Revalue",
    "Role",
    "Sealed",
    "StopPublication",
    "SubjectsField",
    "Text",
    "Ttl",
    "alone",
    "batch_of",
    "command_from_json",
    "decided_in",
    "digest_of",
    "read_dp_events",
]

COMMANDS: Final[dict[str, type[Command]]] = {
    kind.command: kind
    for kind in (
        RegisterPopulation,
        ExtendPopulation,
        RegisterDataset,
        AdoptPolicy,
        AskGrant,
        OpenSparseVector,
        RecordInvocations,
        CommitGrant,
        ReleaseGrant,
        ExpireGrant,
        CountAnswers,
        CloseSparseVector,
        AdoptSigningKey,
        StopPublication,
        ResumePublication,
        CarryOver,
        Recover,
        EraseText,
        AdoptEngine,
        Revalue,
        AcceptTime,
        Batch,
    )
}


def command_from_json(body: dict[str, Any]) -> Command:
    """Reads what ``to_json`` wrote. Raises ValueError (pydantic's) for anything else."""
    fields = dict(body)
    kind = COMMANDS.get(fields.pop("type", None))
    if kind is None:
        raise ValueError(f"no command is called {body.get('type')!r}")
    return kind.model_validate(fields, context=STORED)


@dataclass(frozen=True)
class Envelope:
    """A command with the name of who asks, and the idempotency key, if any.

    A batch that is asked for has ``items``; read back from its event it may have none, for they
    stand in the events that follow.
    """

    by: str
    command: Command
    key: str | None = None
    items: tuple[Command, ...] = ()
    sound: bool = field(default=False, compare=False)
    """Its ``document`` was given, and is known to be one that events may hold."""

    @classmethod
    def together(cls, by: str, parts: Sequence[Envelope], key: str | None) -> Envelope:
        """Make one batch of single requests by ``by``. Raises Invalid if they cannot be one."""
        items = tuple(part.command for part in parts)
        asked = cls(by, batch_of(items, (part.canonical for part in parts)), key, items)
        vars(asked)["parts"] = tuple(parts)
        return asked

    @cached_property
    def parts(self) -> tuple[Envelope, ...]:
        """The items of a batch, each asked for alone; what is worked out of them is kept."""
        return tuple(Envelope(self.by, item) for item in self.items)

    def again(self, by: str, key: str | None) -> Envelope:
        """Return the same command, sent by ``by``."""
        other = Envelope(by, self.command, key)
        # What was worked out of the command holds for whoever asks.
        vars(other).update(document=self.document, canonical=self.canonical)
        return other

    @cached_property
    def document(self) -> dict[str, Any]:
        """The command as events hold it."""
        return self.command.to_json()

    @cached_property
    def canonical(self) -> bytes:
        """Its canonical bytes."""
        return to_keep(written(self.document) if self.sound else canonical(self.document))

    @property
    def fingerprint(self) -> bytes:
        """The digest of the command: two requests with the same key must have the same."""
        return sha256(self.canonical).digest()


Role = Literal["admin", "pipeline", "officer", "auditor"]
