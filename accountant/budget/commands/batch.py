"""The request body of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Discriminator, Field

from accountant.budget import commands as ask
from accountant.budget.commands import MOST_ITEMS
from accountant.budget.commands.base import COMMANDS, Command, construct


class AskGrantItem(ask.AskGrant):
    """Ask for budget before anything runs."""

    type: Literal["ask_grant"] = Field(description="which command this item is")


class CommitGrantItem(ask.CommitGrant):
    """State which mechanisms ran: all that were reserved, or a listed part."""

    type: Literal["commit_grant"] = Field(description="which command this item is")


class ReleaseGrantItem(ask.ReleaseGrant):
    """Attest that nothing of a grant was executed on the data."""

    type: Literal["release_grant"] = Field(description="which command this item is")


class RecordInvocationsItem(ask.RecordInvocations):
    """Record invocations that have already run without a grant."""

    type: Literal["record_invocations"] = Field(description="which command this item is")


Item = AskGrantItem | CommitGrantItem | ReleaseGrantItem | RecordInvocationsItem


class BatchRequest(BaseModel, frozen=True, extra="forbid"):
    """Commits, releases and grants, all or nothing; or invocations, all recorded."""

    needs_key: ClassVar[bool] = True
    items: Annotated[
        list[Annotated[Item, Discriminator("type")]],
        Field(min_length=1, max_length=MOST_ITEMS, description="they do not refer to each other"),
    ]


def decided_in(items: Sequence[BaseModel]) -> list[int]:
    """Return the order in which ``items`` are decided: commits and releases come first."""
    return sorted(range(len(items)), key=lambda place: isinstance(items[place], ask.AskGrant))


def alone(item: Item) -> Command:
    """Return the command of an item, as if it were sent alone."""
    fields = {name: value for name, value in item if name != "type"}
    return construct(COMMANDS[item.type], fields)
