"""Policies: a named list of rules, and the ledger's witnesses. policy_file.py reads them."""

from __future__ import annotations

from decimal import Context, Decimal
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import Field, model_validator

from accountant.budget.custody.publication import NO_WITNESSES, Publication
from accountant.budget.rules import AnyRule
from accountant.budget.rules.base import Rule, RuleId, Strict
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.threshold import ThresholdRule

MAX_RULES: Final = 200
"""The event of a request keeps up to a hundred bytes of each limit, and holds 64 kB in all."""


class Policy(Strict):
    """A named list of rules. Rules apply to every dataset whose id matches their ``datasets``."""

    policy: RuleId
    rules: Annotated[list[AnyRule], Field(min_length=1, max_length=MAX_RULES)]
    publication: Publication = Field(
        NO_WITNESSES, description="witnesses, and how many make a checkpoint published"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        ids: set[str] = set()
        for rule in self.rules:
            if rule.id in ids:
                raise ValueError(f"two rules are called {rule.id!r}")
            ids.add(rule.id)
        limits = {rule.id for rule in self.limits}
        for rule in self.rules:
            if isinstance(rule, ThresholdRule) and rule.of not in limits:
                raise ValueError(f"rule {rule.id!r} is of {rule.of!r}, which is no limit rule here")
        return self

    @cached_property
    def limits(self) -> tuple[LimitRule, ...]:
        """The rules that have a limit, in order."""
        return tuple(rule for rule in self.rules if isinstance(rule, LimitRule))

    @cached_property
    def remembering(self) -> tuple[Rule, ...]:
        """The rules that keep a memory."""
        return tuple(rule for rule in self.rules if rule.remembers)

    def resolved(self) -> Policy:
        """Return the policy with every default written out: later defaults do not change it."""
        return self.model_copy(update={"rules": list(map(_resolved, self.rules))})

    def to_json(self) -> dict[str, Any]:
        """Return the policy as the adopting event stores it."""
        body = self.model_dump(mode="json", exclude_none=True)
        if self.publication == NO_WITNESSES:
            del body["publication"]
        return body


def _resolved(rule: Rule) -> Rule:
    if not isinstance(rule, LimitRule):
        return rule
    own = rule.promise.own_delta  # a fraction of few digits
    exactly = Context(prec=80).divide(Decimal(own.numerator), Decimal(own.denominator))
    limit = rule.limit.model_copy(update={"own_delta": exactly})
    return rule.model_copy(update={"gate": rule.filter.name, "limit": limit})
