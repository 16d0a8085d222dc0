"""Commands as they are sent: several in a batch, read back from events, with client and key."""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Sequence,
)
from functools import reduce
from hashlib import sha256
from operator import or_
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace
from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    StrictInt,
    create_model,
)

from accountant.budget.commands.base import (
    COMMANDS,
    MOST_ITEMS,
    STORED,
    Command,
    construct,
)
from accountant.budget.commands.spending import (
    AskGrant,
    CommitGrant,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.budget.errors import Invalid
from accountant.ledger.events import canonical, to_keep, written

BatchKind = Literal["spending", "invocations"]
ITEMS: Final[dict[BatchKind, tuple[type[Command], ...]]] = {
    "spending": (CommitGrant, ReleaseGrant, AskGrant),
    "invocations": (RecordInvocations,),
}
"""The commands that a batch of each kind may hold."""


class Batch(Command, name="batch", needs_key=True):
    """Answer many commands with one commit. Holds their number and the digest of the array of their
    commands, which stand in the events of the items (of a refused batch in its own event, and in
    those of its parts).
    """

    kind: BatchKind
    size: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BatchPart(Command, name="batch_part"):
    """Hold items of a refused batch, from place ``first`` on, for which its refusal has no room.
    ``size`` and ``digest`` are the batch's. Only a decision on a batch asks this.
    """

    size: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    first: Annotated[StrictInt, Field(ge=0, lt=MOST_ITEMS)]


def batch_of(items: Sequence[Command], commands: Iterable[bytes] | None = None) -> Batch:
    """Return the batch of ``items``, whose canonical ``commands`` may be known. Raises Invalid."""
    if not 1 <= len(items) <= MOST_ITEMS:
        raise Invalid(
            "batch-size", f"a batch has 1 to {MOST_ITEMS} items, not {len(items)}: split it"
        )
    kind: BatchKind = "invocations" if isinstance(items[0], RecordInvocations) else "spending"
    for place, item in enumerate(items):
        if any(getattr(item, name, None) is not None for name in ("wait", "callback")):
            raise Invalid(
                "batch-item-waits",
                "a batch is answered as a whole and at once, so no item of it waits: ask for this "
                "grant alone",
                item=place,
            )
        if not isinstance(item, ITEMS[kind]):
            one, other = (", ".join(each.command for each in kinds) for kinds in ITEMS.values())
            raise Invalid(
                "mixed-batch",
                f"{item.command} cannot be here: a batch consists of {one}, or of {other} only",
                item=place,
            )
    if commands is None:
        commands = [canonical(item.to_json()) for item in items]
    return Batch(kind=kind, size=len(items), digest=digest_of(commands))


def digest_of(commands: Iterable[bytes]) -> str:
    """Return SHA-256 of the array of these canonical commands, in hex."""
    return sha256(b"[" + b",".join(commands) + b"]").hexdigest()


def _item(kind: type[Command]) -> type[Command]:
    """Return the model of a command as an item of a batch: it says its type."""
    named: Any = Literal[kind.command], Field(description="which command this item is")
    return create_model(f"{kind.__name__}Item", __base__=kind, __doc__=kind.__doc__, type=named)


_KINDS: list[type[Command]] = [AskGrant, CommitGrant, ReleaseGrant, RecordInvocations]
_Item: Any = reduce(or_, map(_item, _KINDS))


class BatchRequest(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """Commits, releases and grants, all or nothing; or invocations, all recorded."""

    needs_key: ClassVar[bool] = True
    items: Annotated[
        list[Annotated[_Item, Discriminator("type")]],
        Field(min_length=1, max_length=MOST_ITEMS, description="they do not refer to each other"),
    ]

    def commands(self) -> list[Command]:
        """Return the commands of the items, as if each were sent alone."""
        return [
            construct(COMMANDS[item.type], {k: v for k, v in item if k != "type"})
            for item in self.items
        ]


class PreviewRequest(BaseModel, frozen=True, extra="forbid", defer_build=True):
    """Requests that are previewed one after another."""

    items: Annotated[list[AskGrant], Field(min_length=1, max_length=MOST_ITEMS)] = Field(
        description="requests in the order in which they would be sent"
    )


def decided_in(items: Sequence[BaseModel]) -> list[int]:
    """Return the order in which ``items`` are decided: commits and releases come first."""
    return sorted(range(len(items)), key=lambda place: isinstance(items[place], AskGrant))


def command_from_json(body: dict[str, Any]) -> Command:
    """Read the output of ``to_json``. Raises ValueError (pydantic's) for anything else."""
    fields = dict(body)
    kind = COMMANDS.get(fields.pop("type", None))
    if kind is None:
        raise ValueError(f"no command is called {body.get('type')!r}")
    return kind.model_validate(fields, context=STORED)


class Envelope(Struct, frozen=True, eq=False, gc=False):
    """A command with the name of its client, and the idempotency key, if any. A batch that a client
    sends has ``items``; one that is read back may have none: they stand in the following events.
    """

    by: str
    command: Command
    key: str | None = None
    items: tuple[Command, ...] = ()
    sound: bool = False
    """Its ``document`` was given, and is known to be valid in an event."""
    again: bool = False
    """It is decided again from its event, which says whether it was charged to ``everyone``."""
    everyone: bool = False
    charges: bool = True
    """Ancestors that become known are charged with what was used (budget/ancestors.py). An event of
    a version before 0.3 says nothing of that."""
    forgets: bool = True
    """To leave out a parent that is not registered takes a second person. No event of a version
    before 0.3 asked for one: it is told by a proposal's effect."""
    emptied: bool = False
    """Mechanisms under zero_out may charge a part of a population in which people move, as an event
    of a version before 0.3 let them (budget/request.py)."""
    shown: dict[str, Any] | None = None
    """Its ``document``, as soon as it is known."""
    spelled: bytes | None = None
    """Its ``canonical`` bytes, as soon as they are known."""
    listed: tuple[Envelope, ...] | None = None
    """Its ``parts``, as soon as they are known."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Envelope):
            return NotImplemented
        mine = self.by, self.command, self.key, self.items
        return mine == (other.by, other.command, other.key, other.items)

    __ne__ = object.__ne__  # the structure's own would look at all fields
    __hash__ = None  # type: ignore[assignment] # nobody looks one up

    @classmethod
    def together(cls, by: str, parts: Sequence[Envelope], key: str | None) -> Envelope:
        """Make one batch of single requests by ``by``. Raises Invalid if they cannot be one."""
        items = tuple(part.command for part in parts)
        batch = batch_of(items, (part.canonical for part in parts))
        return cls(by, batch, key, items, listed=tuple(parts))

    def asking(self, command: Command) -> Envelope:
        """Return the same request for another command."""
        return replace(self, command=command, shown=None, spelled=None, listed=None)

    @property
    def parts(self) -> tuple[Envelope, ...]:
        """The items of a batch as single requests, which keep their documents."""
        if (found := self.listed) is None:
            found = tuple(Envelope(self.by, item, again=self.again) for item in self.items)
            force_setattr(self, "listed", found)
        return found

    @property
    def document(self) -> dict[str, Any]:
        """The command as events hold it."""
        if (found := self.shown) is None:
            found = self.command.to_json()
            force_setattr(self, "shown", found)
        return found

    @property
    def canonical(self) -> bytes:
        """Its canonical bytes."""
        if (found := self.spelled) is None:
            document = self.document
            found = to_keep(written(document) if self.sound else canonical(document))
            force_setattr(self, "spelled", found)
        return found

    @property
    def fingerprint(self) -> bytes:
        """The digest of the command. Requests with the same key must have the same."""
        return sha256(self.canonical).digest()
