"""Policies: a named list of rules, and the ledger's witnesses. policy_file.py reads them."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from accountant.budget.malformed import in_one_line, reasons
from accountant.budget.rules import AnyRule
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.base import Rule, RuleId, Scoped, Strict
from accountant.budget.rules.comparing import MOST_BESIDE
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import Scope
from accountant.ledger.notes import COSIGNATURE, Verifier

MAX_RULES: Final = 200
"""What a request's event keeps of them is bounded when they are adopted (decide/adopting.py)."""
MAX_WITNESSES: Final = 12
"""With the ledger's own signatures a checkpoint has at most 16, which every client accepts."""


class Witness(Strict):
    """A C2SP witness: its address, and the key that it cosigns with."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=500)]
    key: Annotated[str, Field(max_length=400)]

    @field_validator("key")
    @classmethod
    def _cosigns(cls, text: str) -> str:
        if Verifier.from_text(text).kind != COSIGNATURE:
            raise ValueError("a witness cosigns with an Ed25519 cosignature key (type 4)")
        return text

    @property
    def verifier(self) -> Verifier:
        """Its key."""
        return Verifier.from_text(self.key)


class Publication(Strict):
    """A head counts as published once ``required`` of the witnesses have cosigned it."""

    witnesses: Annotated[list[Witness], Field(max_length=MAX_WITNESSES)] = []  # noqa: RUF012
    required: Annotated[int, Field(ge=0, le=MAX_WITNESSES)] = 0

    @model_validator(mode="after")
    def _possible(self) -> Publication:
        names = [witness.verifier.name for witness in self.witnesses]
        if len(set(names)) != len(names):
            raise ValueError("two witnesses have the same name")
        if self.required > len(names):
            raise ValueError(f"{self.required} of {len(names)} witnesses cannot agree")
        return self

    def met_by(self, cosigners: Iterable[str]) -> bool:
        """Return whether enough of the witnesses are among ``cosigners``."""
        names = {witness.verifier.name for witness in self.witnesses}
        return sum(name in names for name in cosigners) >= self.required

    def as_strict(self, old: Publication) -> bool:
        """Return whether at least as many of the same witnesses have to agree as under ``old``."""
        fewer = {witness.key for witness in self.witnesses} <= {w.key for w in old.witnesses}
        return self.required >= old.required and (fewer or old.required == 0)


NO_WITNESSES: Final = Publication()


class Policy(Strict):
    """A named list of rules. Rules apply to what is in their scope (rules/scope.py)."""

    policy: RuleId
    rules: Annotated[list[AnyRule], Field(min_length=1, max_length=MAX_RULES)]
    publication: Publication = Field(
        NO_WITNESSES, description="witnesses, and how many make a checkpoint published"
    )

    order: Literal["arrival", "dominant_share", "efficiency"] = Field(
        "arrival", description="in which order requests that wait for budget are admitted"
    )

    @field_validator("rules")
    @classmethod
    def _complete(cls, rules: list[Rule]) -> list[Rule]:
        """Let allotments be about the data of their limits."""
        limits = {rule.id: rule for rule in rules}
        return [
            rule.completed(limits.get(rule.part_of)) if isinstance(rule, AllotmentRule) else rule
            for rule in rules
        ]

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        rules: dict[str, Rule] = {}
        for rule in self.rules:
            if rule.id in rules:
                raise ValueError(f"two rules are called {rule.id!r}")
            rules[rule.id] = rule
        for rule in self.rules:
            rule.check(rules)
        return self

    @classmethod
    def stored(cls, document: Any) -> Policy:
        """Read the policy of an event. Raise ValueError, in words, if this program cannot."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            found = in_one_line(reasons(error), "the policy")
            raise ValueError(f"this program cannot read the policy: {found}") from None

    @cached_property
    def limits(self) -> tuple[LimitRule, ...]:
        """The rules that have a limit, in order."""
        return tuple(rule for rule in self.rules if isinstance(rule, LimitRule))

    @property
    def most_beside(self) -> int:
        """How many accounts its limits together list beside those that decide, in one event; none,
        and no number of them, where many rules leave an event no room.
        """
        return MOST_BESIDE if len(self.rules) <= MAX_RULES // 2 else 0

    @cached_property
    def allotments(self) -> dict[str, tuple[AllotmentRule, ...]]:
        """The allotments by the limit that they are part of."""
        found: dict[str, tuple[AllotmentRule, ...]] = {}
        for rule in self.rules:
            if isinstance(rule, AllotmentRule):
                found[rule.part_of] = (*found.get(rule.part_of, ()), rule)
        return found

    @cached_property
    def scopes(self) -> tuple[tuple[Scoped, Scope], ...]:
        """The rules that are about some requests, and which."""
        return tuple((rule, rule.scope) for rule in self.rules if isinstance(rule, Scoped))

    @cached_property
    def listed(self) -> frozenset[str]:
        """The purposes that its rules compare, which stand in clear in events."""
        return frozenset().union(*(rule.in_clear for rule in self.rules))

    @cached_property
    def ours(self) -> bool:
        """True if all kinds of its rules are this package's, which keep only what events hold."""
        return all(type(rule).__module__.startswith("accountant.") for rule in self.rules)

    @cached_property
    def remembering(self) -> tuple[Rule, ...]:
        """The rules that keep a memory."""
        return tuple(rule for rule in self.rules if rule.remembers)

    @cached_property
    def unlocking(self) -> bool:
        """True if requests unlock a part of a limit when they arrive."""
        return any(rule.per_request for rule in self.limits)

    @cached_property
    def judging_returns(self) -> tuple[Rule, ...]:
        """The rules that judge what is given back on a client's word."""
        return tuple(rule for rule in self.rules if "back" in rule.reads)

    def seen_by(self, client: str) -> Policy:
        """Return the policy as ``client`` may see it: the rules that concern it, without names of
        others, and no witnesses.
        """
        rules = [rule.seen_by(client) for rule in self.rules if rule.concerns(client)]
        shown = {rule.id for rule in rules}
        kept = [rule for rule in rules if getattr(rule, "of", rule.id) in shown]
        return self.model_copy(update={"rules": kept, "publication": NO_WITNESSES})

    def resolved(self) -> Policy:
        """Return the policy with every default written out: later defaults do not change it."""
        return self.model_copy(update={"rules": list(map(_resolved, self.rules))})

    def to_json(self) -> dict[str, Any]:
        """Return the policy as the adopting event stores it."""
        body = self.model_dump(mode="json", exclude_none=True)
        if self.publication == NO_WITNESSES:
            del body["publication"]
        if self.order == "arrival":
            del body["order"]
        return body


def _resolved(rule: Rule) -> Rule:
    if not isinstance(rule, LimitRule):
        return rule
    own = rule.promise.own_delta  # a fraction of few digits
    exactly = Context(prec=80).divide(Decimal(own.numerator), Decimal(own.denominator))
    limit = rule.limit.model_copy(update={"own_delta": exactly})
    return rule.model_copy(update={"gate": rule.filter.name, "limit": limit})
