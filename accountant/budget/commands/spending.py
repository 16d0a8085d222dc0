"""Commands that ask for budget, record what ran, and settle grants."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    Field,
    StrictInt,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from accountant.budget.commands.base import (
    DEFAULT_TTL,
    Change,
    Command,
    Count,
    Datasets,
    Digest,
    FreeText,
    Identifier,
    KeyMade,
    Mechanisms,
    Moment,
    SubjectsField,
    Ttl,
    Wait,
)
from accountant.budget.population.selection import stored_only
from accountant.privacy.mechanisms import SparseVector


class _Request(Command, needs_key=True):
    dataset: Datasets = Field(description="the dataset's short id; several of one query as a list")
    subjects: SubjectsField = None
    purpose: FreeText | None = Field(None, description="what the answer is for, in a few words")
    justification: FreeText | None = Field(None, description="why it is worth its privacy")
    allotment: Identifier | None = Field(
        None, description="the allotment to draw from; absent: the common part"
    )


class AskGrant(_Request, name="ask_grant"):
    """Ask for budget before anything runs."""

    mechanisms: Mechanisms
    ttl_seconds: Ttl = DEFAULT_TTL

    wait: Wait | None = Field(
        None,
        description="how long it may wait for budget, or for a person's approval, in seconds or as "
        "7d, 12h or 30m; without it a request that does not fit is refused at once, and one that "
        "needs approval waits for 7 days",
    )
    at_least: Annotated[StrictInt, Field(ge=1, le=10**9)] | None = Field(
        None,
        description="of a request of one mechanism that waits: the least count that is accepted",
    )
    callback: Annotated[str, Field(max_length=500)] | None = Field(
        None,
        exclude=True,  # no event holds it: it decides nothing, and may hold a secret
        description="an address to which is told what became of the request, if it waits",
    )

    @model_validator(mode="after")
    def _waits(self) -> AskGrant:
        if self.at_least is None:
            return self
        counts = [mechanism.count for mechanism in self.mechanisms]
        if self.wait is None or len(counts) > 1 or self.at_least >= counts[0]:
            raise PydanticCustomError(
                "not_fewer",
                "at_least is for a request that waits, of one mechanism with a larger count",
            )
        return self


class OpenSparseVector(_Request, name="open_sparse_vector"):
    """Open a sparse vector session: reserve its whole cost, then count its answers."""

    mechanism: SparseVector = Field(description="the session")
    ttl_seconds: Ttl = DEFAULT_TTL


class RecordInvocations(_Request, name="record_invocations"):
    """Record invocations that have already run without a grant, also those over budget."""

    mechanisms: Mechanisms
    ran_at: Moment | None = Field(None, description="when it ran, RFC 3339 UTC; information only")


class _OnGrant(Command):
    grant: str = Field(description="the grant's id")


class _Returning(Change):
    grant: str = Field(description="the grant's id")


class CommitGrant(_Returning, name="commit_grant"):
    """State which mechanisms ran: all that were reserved, or a listed part."""

    mechanisms: Mechanisms | None = Field(None, description="the part that was run, as asked for")


class RepublishAnswer(_OnGrant, name="republish_answer", needs_key=True):
    """State that an answer of a committed grant is published again, unchanged, at no charge."""

    dataset: Datasets = Field(description="the datasets that the grant names")
    answer: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the answer as it was published, in hex"
    )


class ReleaseGrant(_Returning, name="release_grant"):
    """Attest that nothing of a grant was executed on the data."""

    reason: FreeText = Field(description="the reason, in words")


class ExpireGrant(_OnGrant, name="expire_grant"):
    """Charge a grant that has expired. Only the service sends this command."""


class _Waited(_OnGrant):
    client: str = Field(description="the client that asked for it")
    request: dict[str, Any] = Field(description="the request, with the count that is decided on")


class Approval(BaseModel, frozen=True, extra="forbid"):
    """What an approval was made by: the digest of the event that was read, and what was known of
    the API keys of whoever approves and of whoever asked, if one bears the name.
    """

    digest: Digest
    key: KeyMade | None = None
    asked_with: KeyMade | None = None


class AdmitGrant(_Waited, name="admit_grant"):
    """Grant a request that has waited. Nobody sends this command: it follows from the ledger, or
    from an ``approval`` (``ApproveGrant``).
    """

    approval: Approval | None = None
    reason: FreeText | None = None


class _OnApproval(_OnGrant):
    digest: Digest = Field(description="the digest of the request that you read")
    key: SkipJsonSchema[
        Annotated[KeyMade | None, stored_only("not_here", "the service knows the key")]
    ] = None


class ApproveGrant(_OnApproval, name="approve_grant"):
    """Approve a request that waits for a person. No event holds this command: the admission has it
    as ``approval``.
    """

    reason: FreeText | None = Field(None, description="the reason, in words")
    asked_with: SkipJsonSchema[
        Annotated[KeyMade | None, stored_only("not_here", "the service knows the key")]
    ] = None


class DeclineGrant(_OnApproval, name="decline_grant"):
    """Decline a request that waits for a person, which ends it."""

    reason: FreeText = Field(description="the reason, which the client is told")


class TimeOutGrant(_Waited, name="time_out_grant"):
    """Refuse a request that has waited long enough. Only the service sends this command."""


class CountAnswers(_OnGrant, name="count_answers", needs_key=True):
    """Count the answers that a session has given since the last count."""

    positives: Count = Field(description="positive answers since the last count")
    negatives: Count = Field(description="negative answers since the last count; they are free")


class CloseSparseVector(_Returning, name="close_sparse_vector"):
    """Close a session. The epsilon of positives that it did not use comes back."""
