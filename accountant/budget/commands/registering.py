"""Registering populations and datasets, adopting policies."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    Field,
    StrictBool,
)

from accountant.budget.commands.base import (
    Command,
    Identifier,
    Text,
)
from accountant.budget.population.population import MAX_CELLS, Membership
from accountant.budget.population.selection import Name
from accountant.privacy.mechanisms import Relation


class RegisterPopulation(Command):
    """Registers a population and opens its ledger; values appended later extend a dimension."""

    command: ClassVar[str] = "register_population"
    privacy_unit: Text = Field(description="who or what is protected: person, household, …")
    neighbouring: Relation = Field(description="which two data sets differ by one privacy unit")
    membership: Membership = Field(description="whether it is public who is in which cell")
    dimensions: Annotated[
        dict[Identifier, Annotated[list[Name], Field(min_length=1, max_length=MAX_CELLS)]],
        Field(max_length=8, description="unchanging public attributes with all their values"),
    ] = {}  # noqa: RUF012 pydantic copies it
    attested_new: StrictBool = Field(
        False, description="when extending: the members of new cells were in no data before"
    )


class ExtendPopulation(Command):
    """Appends values to dimensions: what is left of a registration that one event cannot hold."""

    command: ClassVar[str] = "extend_population"
    added: dict[Identifier, Annotated[list[Name], Field(min_length=1, max_length=MAX_CELLS)]]
    attested_new: StrictBool = False


class RegisterDataset(Command):
    """Registers a dataset under a short id."""

    command: ClassVar[str] = "register_dataset"
    id: Identifier
    namespace: Text = Field(description="OpenLineage namespace, e.g. postgres://warehouse")
    name: Text = Field(description="OpenLineage name, e.g. public.visits")
    owner: Text | None = None
    parents: Annotated[list[Text], Field(max_length=100)] = []  # noqa: RUF012


class AdoptPolicy(Command):
    """Adopts a policy. ``policy`` is the parsed file with all defaults written out."""

    command: ClassVar[str] = "adopt_policy"
    policy: dict[str, Any]
    source_digest: str
    approved_by: str | None = None
