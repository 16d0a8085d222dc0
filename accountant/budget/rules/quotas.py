"""Which part of all charges a limit counts, and in which accounts: of each client, of each purpose,
of some cells.

A limit may count all charges or some, and have one account for all or one for each client or each
purpose (``per``). Those that count some only *divide* a budget. A limit with ``subjects`` is about
some cells: it counts every charge there, and promises something to the people in them.

**What is compared.** A request of cells Q, under a limit about cells S, is compared on Q and S
together: where they have none in common the limit says nothing of it. A request that names everyone
is compared on all of S. Its account counts every charge on every cell, so that S may name cells
that are added later, and is read on S only.

**Each purpose.** ``per: purpose`` has an account for each purpose that the policy lists, in
whatever rule. All other requests, for a purpose that it does not list or for none, count in one
account together: so nobody gets around it by naming another purpose, or none. (An unlisted purpose
is free text and sealed: two of them cannot be compared.) A client says itself what its purpose is.

**Additional limits only.** Claim: on every state, a policy with one more limit that divides or is
about some cells admits no request that it would not admit without that one. So whatever the other
limits promise holds. *Proof.* ``evaluate`` asks each rule by itself and takes the strictest action
that fired. What a rule compares are its own accounts, its memory and the request: of other rules
only a threshold reads its limit, which flags, and a limit its allotments; none is part of such a
limit (allotment.py). Rules that no policy states ask that a limit covers each dataset, and such a
limit does not count as one (``promises``). So one more of them adds a comparison and changes none.
And every charge is booked in all accounts of its request, whichever rule was the tightest: the
limit above has counted all that a quota under it has.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from accountant.budget.population.selection import Box, Selection, box_of
from accountant.budget.rules.base import ScopedByPurpose
from accountant.budget.rules.scope import ALL, Patterns, Scope, Subjects, either, scope_of
from accountant.budget.rules.telling import scope_name

if TYPE_CHECKING:
    from accountant.budget.population.population import Population


class Quota(ScopedByPurpose):
    """Base of the kinds that count charges."""

    across: Literal["datasets"] | None = Field(
        None, description="a person's total over all datasets in scope"
    )
    per: Literal["client", "purpose"] | None = Field(
        None,
        description="a sub-limit for each client; or for each purpose that the policy lists, and "
        "one for all requests that name no other",
    )
    subjects: Subjects | None = Field(
        None, description="by dimension, values: it is about the cells that have one of each"
    )
    clients: Patterns | None = Field(
        None,
        description="globs over the names of clients: a sub-limit, which counts their charges only",
    )
    unit: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")] | None = Field(
        None,
        description="the further unit that it protects, in place of the first one",
    )

    @model_validator(mode="after")
    def _about_cells_of_the_first_unit(self) -> Self:
        if self.subjects is not None and self.unit is not None:
            raise ValueError(
                "a limit for a further unit is about everyone: a unit may lie in several cells; "
                "leave out subjects or unit"
            )
        return self

    @cached_property
    def scope(self) -> Scope:
        """Which charges it counts."""
        return scope_of(self.datasets, self.owners, self.labels, self.clients, self.purposes)

    @cached_property
    def divides(self) -> bool:
        """Whether it only divides a budget: it counts the charges of one client, of some clients or
        for one or some purposes, and promises nothing about the data.
        """
        return self.per is not None or self.scope.partial

    @property
    def data(self) -> str:
        """What the rule applies to, as text."""
        about = f", of {self.group_in_words}" if self.subjects else ""
        return super().data + about + (f", for one {self.unit}" if self.unit else "")

    @property
    def promises(self) -> bool:
        """Whether it promises something to each first unit of the population: only then a dataset
        that it covers has a limit.
        """
        return not self.divides and self.unit is None and self.subjects is None

    @property
    def group_in_words(self) -> str:
        """The cells that it is about: ``region “north” or “south” and age “17”``."""
        sides = (f"{name} {either(values)}" for name, values in (self.subjects or {}).items())
        return " and ".join(sides)

    @property
    def whom(self) -> str:
        """Who it is about, in words."""
        return self.group_in_words or "everyone"

    @cached_property
    def found(self) -> list[tuple[Population, Box]]:
        """The cells that it is about, in the population that they were found in last."""
        return []

    def box(self, people: Population) -> Box:
        """Return the cells that it is about. Raises Invalid where the population has no such."""
        if not self.found or self.found[0][0] is not people:
            self.found[:] = [(people, box_of(people, self.subjects or {}))]
        return self.found[0][1]

    def cells(self, people: Population, selection: Selection) -> Selection | None:
        """Return which of the selected cells it is about; None if it is about none of them."""
        return selection if self.subjects is None else selection.within(self.box(people))

    @property
    def counting(self) -> tuple[object, ...]:
        """Which charges it counts, and in which accounts: rules with the same count the same."""
        group = sorted((self.subjects or {}).items())
        about = tuple((name, tuple(values)) for name, values in group)
        return self.scope, self.across, self.per, self.span, self.unit, about

    def counts(self, client: str, purpose: object, allotment: str | None) -> bool:
        """Return whether it counts what ``client`` asks for ``purpose``, whatever ``allotment`` it
        draws from.
        """
        return self.scope.counts(client, purpose)

    def concerns(self, client: str) -> bool:
        """Return whether it counts some request of ``client``."""
        return self.scope.concerns(client)

    def seen_by(self, client: str) -> Self:
        """Return the rule with only those patterns over names of clients that match ``client``."""
        if not self.clients:
            return self
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        return self.model_validate(stated | {"clients": list(self.scope.seen_by(client).clients)})

    @property
    def span(self) -> str | None:
        """The window that it counts over; None: the lifetime."""
        return None

    def who(self) -> str:
        """Return whose charges a sub-limit counts, as the subject of a sentence."""
        named = f" {either(self.scope.clients)}" if self.scope.clients else ""
        if self.per == "client":
            return f"Each client{named}"
        if self.per == "purpose":
            by = f" of client{named}" if named else ""
            others = "" if self.purposes else ", and all others together,"
            return f"Requests{by} for each purpose that is listed{others}"
        return f"Client{named}, all that match together," if named else "All clients together"

    def place(self, dataset: str, client: str, purpose: str) -> tuple[str, str, str]:
        """Return dataset (or ``ALL``), client (or "") and purpose (or "") of the account that a
        charge on data in scope goes to; ``purpose`` is "" unless the policy lists it.
        """
        by_client, by_purpose = self.per == "client", self.per == "purpose"
        places = client if by_client else "", purpose if by_purpose else ""
        return ALL if self.across else dataset, *places

    def place_in_words(self, place: tuple[str, str, str], people: Population) -> str:
        """Describe an account of the rule, as ``place`` returns it, and what of it the rule is
        about: of which unit, if the population has several.
        """
        dataset, client, purpose = place
        found = scope_name(dataset, client)
        if self.per == "purpose":
            found += f", purpose {purpose}" if purpose else ", all requests for no listed purpose"
        narrowed = self.scope.narrowed + (f", {self.group_in_words}" if self.subjects else "")
        found += f"; of {narrowed.removeprefix(', ')}" if narrowed else ""
        return found + (f"; for {people.called(self.unit)}" if people.units else "")
