"""Commands that register populations and datasets, and adopt policies."""

from __future__ import annotations

from collections.abc import (
    Mapping,
)
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from accountant.budget.commands.base import (
    Change,
    Count,
    Identifier,
    Reasons,
    Text,
    Use,
    Values,
    _ordered,
)
from accountant.budget.population.population import (
    MOST_DIMENSIONS,
    MOST_LABELS,
    LabelText,
    Membership,
)
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.base import LARGEST_GROUP, MOST_UNITS
from accountant.privacy.mechanisms.further_units import Unit, Units


class FurtherUnit(BaseModel, frozen=True, extra="forbid"):
    """A further unit of privacy: a part of the privacy unit, or a group of it."""

    part_of: Text | None = Field(None, description="the privacy unit, of which it is a part")
    group_of: Text | None = Field(None, description="the privacy unit, of which it is a group")
    at_most: Annotated[StrictInt, Field(ge=1, le=LARGEST_GROUP)] | None = Field(
        None,
        description="of a group: the most units in it; of a part: how many of them one unit has at "
        "most in all the data",
    )
    called: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None, description="one of it in words, such as one person on one day"
    )

    @model_validator(mode="after")
    def _either(self) -> FurtherUnit:
        if (self.part_of is None) == (self.group_of is None):
            raise PydanticCustomError("unit_kind", "give exactly one of part_of and group_of")
        if self.group_of is not None and self.at_most is None:
            raise PydanticCustomError(
                "unit_group", "a group needs at_most: without it nothing bounds what it loses"
            )
        return self


FurtherUnits = Annotated[
    dict[Identifier, FurtherUnit],
    Field(
        max_length=MOST_UNITS,
        description="further units that limits may protect, by name: a part of the privacy unit, "
        'such as {"person-day": {"part_of": "person"}}, or a group of it',
    ),
]


def units_of(stated: Mapping[str, FurtherUnit]) -> Units:
    """Return further units as they were stated, by name."""
    return tuple(
        Unit(name, one.group_of is not None, one.at_most, one.called)
        for name, one in sorted(stated.items())
    )


def stated_of(unit: Unit, of: str) -> FurtherUnit:
    """Return a further unit, of the privacy unit ``of``, as it is stated."""
    part, group = (None, of) if unit.group else (of, None)
    return FurtherUnit(part_of=part, group_of=group, at_most=unit.at_most, called=unit.called)


class RegisterPopulation(Change, name="register_population"):
    """Register a population and open its ledger; values appended later extend a dimension."""

    privacy_unit: Text = Field(description="who or what is protected: person, household, …")
    neighbouring: Relation = Field(description="which two data sets differ by one privacy unit")
    membership: Membership = Field(description="whether it is public who is in which cell")
    dimensions: Annotated[
        dict[Identifier, Values],
        Field(
            max_length=MOST_DIMENSIONS,
            description="unchanging public attributes with all their values",
        ),
    ] = {}  # noqa: RUF012
    attested_new: StrictBool = Field(
        False,
        description="when extending: the members of new cells were in no data that anything ran on "
        "before, so they owe nothing of what was spent",
    )
    fixed: Reasons = Field(
        {},
        description="for a dimension that looks like times of events: why it never changes for a "
        "unit, such as `the week a person joined never changes`",
    )
    units: FurtherUnits = {}  # noqa: RUF012


class AppendValues(Change, name="append_values"):
    """Append values to a dimension, as many as one request holds. Repeated it changes nothing."""

    dimension: Identifier
    first: Count = Field(
        description="the place of the first of these values in the dimension: how many go before it"
    )
    values: Values = Field(description="values in order; those that are there already are skipped")
    attested_new: StrictBool = Field(
        False, description="as of a registration, of the values that are not there yet"
    )
    fixed: Reasons = Field({}, description="as of a registration")


class ExtendPopulation(Change, name="extend_population"):
    """Append values to dimensions: the event of a registration in parts, or one that extends, and
    what is proposed of an extension that takes a second person.
    """

    added: dict[Identifier, Values]
    attested_new: StrictBool = False
    fixed: Reasons = {}  # noqa: RUF012
    units: FurtherUnits = {}  # noqa: RUF012


class RegisterDataset(Change, name="register_dataset"):
    """Register a dataset under a short id."""

    id: Identifier
    namespace: Text = Field(description="OpenLineage namespace, e.g. postgres://warehouse")
    name: Text = Field(description="OpenLineage name, e.g. public.visits")
    owner: Text | None = Field(None, description="the owner of the data")
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=MOST_LABELS)] | None = Field(
        None,
        description="labels that rules may be about, such as risk: high; those of before if left "
        "out",
    )
    parents: list[Text] = Field([], max_length=100, description="the datasets it was made from")
    also: Annotated[list[Use], AfterValidator(_ordered)] = Field(
        [], max_length=100, description="the datasets of other populations that are the same data"
    )
    closes: list[Annotated[str, Field(max_length=64)]] = Field(
        [],
        max_length=200,
        description="the limit rules that may close for good on data which others were made from",
    )


class AdoptPolicy(Change, name="adopt_policy"):
    """Adopt a policy. ``policy`` is the parsed file with all defaults written out; ``closes`` are
    the limit rules that may begin closed for good.
    """

    policy: dict[str, Any]
    source_digest: str
    closes: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=200)
