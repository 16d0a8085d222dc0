"""Mechanisms without a derivation: declared by the client, or not private at all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic_core import PydanticCustomError

from accountant.privacy.curves import curve_of_rho, curve_of_stated
from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import NonNegative, Probability, exactly_one, plain
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Relation,
    body,
    examples,
    forbidden,
)

_Order = Annotated[str, StringConstraints(pattern=r"^([2-9]|[1-9][0-9]{1,5})$")]
_Table = Annotated[dict[_Order, NonNegative], Field(min_length=1, max_length=100)]
_TABLE: TypeAdapter[dict[str, Decimal]] = TypeAdapter(_Table, config=ConfigDict(defer_build=True))


def _read(value: Any) -> tuple[tuple[int, Decimal], ...]:
    table = {str(order): tau for order, tau in value} if isinstance(value, tuple) else value
    found = _TABLE.validate_python(table)  # documents have objects, our own models tuples
    return tuple(sorted((int(order), tau) for order, tau in found.items()))


class _DescribedTable:
    """Describes the table, in a JSON schema, as documents spell it."""

    @classmethod
    def __get_pydantic_json_schema__(cls, _: Any, __: Any) -> dict[str, Any]:
        return _TABLE.json_schema()


Divergences = Annotated[
    tuple[tuple[int, Decimal], ...],
    PlainValidator(_read),
    PlainSerializer(lambda points: {str(order): plain(tau) for order, tau in points}),
    _DescribedTable,
]
"""Renyi divergences by order: an object in documents, sorted pairs here."""


class _Stated(BaseMechanism):
    _no_claim = forbidden("claimed", "there is no derivation to compare it with")
    _no_sampling = forbidden("sampling", "state what the sampled mechanism costs")


class Declared(_Stated):
    """A loss that the client declares: (epsilon, delta); rho-zCDP, perhaps but for a delta; mu-GDP;
    or Renyi divergences. It is booked as stated, never checked.

    Without epsilon it enters no sum of epsilons: only the filters zcdp, renyi and gdp admit it (Bun
    and Steinke 2016, Def. 8.1 for a delta; Mironov 2017; Dong, Roth, Su 2022: mu-GDP has the
    divergences of a rho of mu^2 / 2).
    """

    model_config = examples(
        body("declared", epsilon="0.5", delta="1e-9"),
        body("declared", rho="0.01", delta="1e-9"),
        body("declared", mu="0.1"),
        body("declared", renyi={"8": "0.05", "32": "0.3"}),
    )
    kind: Literal["declared"] = Field(description=KIND)
    epsilon: NonNegative | None = None
    """Natural-log epsilon of one invocation, as declared."""
    delta: Probability = Decimal(0)
    """Delta of one invocation, as declared, beside epsilon or rho."""
    rho: NonNegative | None = None
    """rho of zero-concentrated privacy, as declared, per invocation."""
    mu: NonNegative | None = None
    """mu of Gaussian differential privacy, as declared, per invocation."""
    renyi: Divergences | None = None
    """Renyi divergences of one invocation by whole order, as declared. An order between takes the
    next higher one; above the highest there is no bound."""

    _one = exactly_one("declared_kind", "epsilon", "rho", "mu", "renyi")

    @model_validator(mode="after")
    def _delta(self) -> Self:
        if self.delta and self.epsilon is None and self.rho is None:
            raise PydanticCustomError("declared_delta", "delta goes with epsilon or rho only")
        return self

    def loss(self, stated: Relation) -> None:
        """Return None: nothing can be derived."""
        return

    def claim(self) -> Loss:
        """Return the declaration itself."""
        if self.epsilon is not None:
            loss = pure(Fraction(self.epsilon), Fraction(self.delta))
        elif self.rho is not None:
            rho = Fraction(self.rho)
            loss = Loss(None, Fraction(self.delta), rho=rho, curve=curve_of_rho(rho))
        elif self.mu is not None:
            square = Fraction(self.mu) ** 2
            loss = Loss(None, rho=square / 2, mu_squared=square, curve=curve_of_rho(square / 2))
        else:
            points = tuple((order, Fraction(tau)) for order, tau in self.renyi or ())
            loss = Loss(None, curve=curve_of_stated(points))
        return loss.group(self.group_size)


class NonPrivate(_Stated):
    """A release without noise. It may reveal everything that the data say about a person, so no
    finite epsilon describes it: its loss is infinite, under every rule and in every currency.
    """

    model_config = examples(body("non_private"))
    kind: Literal["non_private"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Return an unbounded loss, whatever the relation."""
        return UNBOUNDED
