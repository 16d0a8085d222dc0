"""Many commands answered with one commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictInt

from accountant.budget.commands.base import Command, construct
from accountant.budget.commands.spending import (
    AskGrant,
    CommitGrant,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.budget.errors import Invalid
from accountant.ledger.events import canonical

MOST_ITEMS: Final = 1_000
BatchKind = Literal["spending", "invocations"]
ITEMS: Final[dict[BatchKind, tuple[type[Command], ...]]] = {
    "spending": (CommitGrant, ReleaseGrant, AskGrant),
    "invocations": (RecordInvocations,),
}
"""What a batch of each kind may consist of."""


class Batch(Command):
    """How many items were asked for together, and the digest of the array of their commands, which
    stand in the events of the items (of a refused batch in its own event).
    """

    command: ClassVar[str] = "batch"
    needs_key: ClassVar[bool] = True
    kind: BatchKind
    size: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def batch_of(items: Sequence[Command], commands: Iterable[bytes] | None = None) -> Batch:
    """The batch of ``items``, whose canonical ``commands`` may be known. Raises Invalid if they
    cannot be one.
    """
    if not 1 <= len(items) <= MOST_ITEMS:
        raise Invalid(
            "batch-size", f"a batch has 1 to {MOST_ITEMS} items, not {len(items)}: split it"
        )
    kind: BatchKind = "invocations" if isinstance(items[0], RecordInvocations) else "spending"
    for place, item in enumerate(items):
        if not isinstance(item, ITEMS[kind]):
            raise Invalid(
                "mixed-batch",
                f"{item.command} cannot be here: a batch consists of {_named('spending')}, or of "
                f"{_named('invocations')} only",
                item=place,
            )
    if commands is None:
        commands = [canonical(item.to_json()) for item in items]
    return Batch(kind=kind, size=len(items), digest=digest_of(commands))


def digest_of(commands: Iterable[bytes]) -> str:
    """SHA-256 of the array of these canonical commands, in hex."""
    return sha256(b"[" + b",".join(commands) + b"]").hexdigest()


def _named(kind: BatchKind) -> str:
    return ", ".join(each.command for each in ITEMS[kind])


class AskGrantItem(AskGrant):
    """Asks for budget before anything runs."""

    type: Literal["ask_grant"] = Field(description="which command this item is")


class CommitGrantItem(CommitGrant):
    """What was really run: all that was reserved, or a listed part."""

    type: Literal["commit_grant"] = Field(description="which command this item is")


class ReleaseGrantItem(ReleaseGrant):
    """Attests that none of it was executed on the data."""

    type: Literal["release_grant"] = Field(description="which command this item is")


class RecordInvocationsItem(RecordInvocations):
    """Records what has already run, without a grant."""

    type: Literal["record_invocations"] = Field(description="which command this item is")


Item = AskGrantItem | CommitGrantItem | ReleaseGrantItem | RecordInvocationsItem


class BatchRequest(BaseModel):
    """Commits, releases and grants, all or nothing; or invocations, all recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_key: ClassVar[bool] = True
    items: Annotated[
        list[Annotated[Item, Discriminator("type")]],
        Field(min_length=1, max_length=MOST_ITEMS, description="they do not refer to each other"),
    ]

    @property
    def order(self) -> list[int]:
        """The places of the items in the order in which they are decided."""
        return decided_in(self.items)


def decided_in(items: Sequence[BaseModel]) -> list[int]:
    """The places of ``items`` in the order in which they are decided: what gives budget back comes
    first, so that the order in which they are listed bears on nothing.
    """
    return sorted(range(len(items)), key=lambda place: isinstance(items[place], AskGrant))


def alone(item: Item) -> Command:
    """What an item asks for, as if it were asked for alone."""
    [kind] = [one for kinds in ITEMS.values() for one in kinds if isinstance(item, one)]
    return construct(kind, {name: value for name, value in item if name != "type"})
