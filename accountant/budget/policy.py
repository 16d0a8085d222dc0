"""Policies: which rules there are, what blocks and what flags; policy_file.py reads them."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializeAsAny,
    Tag,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from accountant.budget.publication import NO_WITNESSES, Publication
from accountant.privacy.filters import DEFAULT_GATE, Gate, Limit, gate_for
from accountant.privacy.mechanisms import KINDS, Amount

if TYPE_CHECKING:
    from accountant.budget.decision import Finding
    from accountant.budget.request import Request
    from accountant.budget.state import State
    from accountant.ledger.events import Event

RuleId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Action = Literal["block", "flag"]
SMALLEST_DELTA: Final = Decimal("1e-20")
MAX_RULES: Final = 50
"""Each rule evaluated takes up to a kilobyte of a decision, and an event has 64 of them."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LimitSpec(_Strict):
    """(epsilon, delta); ``own_delta`` is the part kept for mechanisms' own deltas."""

    epsilon: Annotated[Amount, Field(ge=Decimal("1e-9"), le=10**6)]
    delta: Annotated[Amount, Field(ge=0, lt=1)] = Decimal(0)
    own_delta: Annotated[Amount, Field(ge=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _own_within_delta(self) -> LimitSpec:
        if self.own_delta is not None and self.own_delta > self.delta:
            raise ValueError(f"own_delta {self.own_delta} is more than delta {self.delta}")
        if 0 < self.delta < SMALLEST_DELTA:
            raise ValueError(f"delta {self.delta} is neither 0 nor at least {SMALLEST_DELTA}")
        return self


class LimitRule(_Strict):
    """At most (epsilon, delta) for every subject group of each matching dataset."""

    id: RuleId
    limit: LimitSpec
    datasets: str = Field("*", max_length=200, description="glob over dataset ids")
    across: Literal["datasets"] | None = Field(
        None, description="a person's total over all matching datasets"
    )
    per: Literal["client"] | None = Field(None, description="a sub-limit for each client")
    gate: Literal["basic", "advanced", "zcdp", "renyi", "gdp"] | None = None
    action: Action = "block"
    carry: Literal["used", "none"] = Field(
        "used", description="what a new epoch starts with; none is a reset and takes two names"
    )

    @cached_property
    def promise(self) -> Limit:
        """The limit with its delta split: all of it is own delta under basic, else a tenth."""
        delta = Fraction(self.limit.delta)
        if self.limit.own_delta is not None:
            own = Fraction(self.limit.own_delta)
        else:
            own = delta if self.gate == "basic" else delta / 10
        return Limit(Fraction(self.limit.epsilon), delta, own)

    @cached_property
    def filter(self) -> Gate:
        """The gate that admits beside basic."""
        return gate_for(self.gate or DEFAULT_GATE, self.promise)


class ThresholdRule(_Strict):
    """Fires when more than a share of a limit rule's epsilon, or of its own delta, is spent."""

    id: RuleId
    of: RuleId
    at: str = Field(pattern=r"^\d{1,2}(\.\d+)?%$", description="a percentage below 100 %")
    action: Literal["flag"] = "flag"

    @cached_property
    def share(self) -> Fraction:
        """``at`` as a fraction."""
        return Fraction(Decimal(self.at[:-1])) / 100


class MechanismRule(_Strict):
    """Fires when a request uses one of the mechanism kinds."""

    id: RuleId
    mechanisms: Annotated[list[str], Field(min_length=1)]
    datasets: str = "*"
    action: Action = "block"

    @field_validator("mechanisms")
    @classmethod
    def _known(cls, kinds: list[str]) -> list[str]:
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(
                    f"no mechanism kind is called {kind!r}; there are: " + ", ".join(KINDS)
                )
        return kinds


class RequireRule(_Strict):
    """Fires when a request leaves out one of the named fields."""

    id: RuleId
    require: Annotated[list[Literal["purpose", "justification"]], Field(min_length=1)]
    datasets: str = "*"
    action: Action = "block"


class PurposeRule(_Strict):
    """Fires when a request's purpose is not on the list."""

    id: RuleId
    purposes: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    datasets: str = "*"
    action: Action = "block"


class OtherRule(_Strict):
    """A rule of a kind that stands in a module of its own: it says itself what it finds, and may
    remember something. ``field`` is what only rules of this kind have.
    """

    field: ClassVar[str]
    id: RuleId
    action: Action = "block"

    def findings(self, state: State, request: Request, memory: Any) -> list[Finding]:
        """What the rule says of ``request``, remembering ``memory`` (None at first)."""
        raise NotImplementedError(type(self).__name__)

    def remember(self, memory: Any, event: Event) -> Any:
        """What it remembers after ``event``: a JSON value, which nobody changes later."""
        return memory


OTHER_KINDS: Final[dict[str, type[OtherRule]]] = {}
"""By their field. Each is evaluated at length: no form knows it (express/__init__.py)."""
KINDS_OF_RULE: Final = ("limit", "of", "mechanisms", "require", "purposes")


def _kind_of_rule(rule: Any) -> str | None:
    kinds = (*KINDS_OF_RULE, *OTHER_KINDS)
    if isinstance(rule, BaseModel):
        return next(k for k in kinds if k in type(rule).model_fields)
    if isinstance(rule, dict):
        return next((key for key in kinds if key in rule), None)
    return None


def _read_rule(value: Any, known: ValidatorFunctionWrapHandler) -> Any:
    kind = OTHER_KINDS.get(_kind_of_rule(value) or "")
    return known(value) if kind is None else kind.model_validate(value)


Rule = Annotated[
    Annotated[LimitRule, Tag("limit")]
    | Annotated[ThresholdRule, Tag("of")]
    | Annotated[MechanismRule, Tag("mechanisms")]
    | Annotated[RequireRule, Tag("require")]
    | Annotated[PurposeRule, Tag("purposes")],
    Discriminator(
        _kind_of_rule,
        custom_error_type="rule_kind",
        custom_error_message="a rule has one of: " + ", ".join(KINDS_OF_RULE),
    ),
]


class Policy(_Strict):
    """A named list of rules. Rules apply to every dataset whose id matches their ``datasets``."""

    policy: RuleId
    rules: Annotated[
        list[SerializeAsAny[Annotated[Rule, WrapValidator(_read_rule)]]],
        Field(min_length=1, max_length=MAX_RULES),
    ]
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

    @property
    def limits(self) -> tuple[LimitRule, ...]:
        """The rules that have a limit, in order."""
        return tuple(rule for rule in self.rules if isinstance(rule, LimitRule))

    @cached_property
    def others(self) -> tuple[OtherRule, ...]:
        """The rules of kinds that stand in modules of their own."""
        rules: list[BaseModel] = list(self.rules)
        return tuple(rule for rule in rules if isinstance(rule, OtherRule))

    def resolved(self) -> Policy:
        """The policy with every default written out, so that a later default changes nothing."""
        rules = [
            rule.model_copy(
                update={
                    "gate": rule.filter.name,
                    "limit": rule.limit.model_copy(
                        update={"own_delta": _decimal(rule.promise.own_delta)}
                    ),
                }
            )
            if isinstance(rule, LimitRule)
            else rule
            for rule in self.rules
        ]
        return self.model_copy(update={"rules": rules})

    def to_json(self) -> dict[str, Any]:
        """As it is stored in the adopting event."""
        body = self.model_dump(mode="json", exclude_none=True)
        if self.publication == NO_WITNESSES:
            del body["publication"]
        return body


def _decimal(value: Fraction) -> Decimal:
    """``value``, which has few digits, exactly."""
    return Context(prec=80).divide(Decimal(value.numerator), Decimal(value.denominator))
