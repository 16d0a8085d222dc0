"""Answers of the service, as values. ``body`` of each is the whole JSON document.

Amounts are exact decimals; one that has no bound is ``Decimal("Infinity")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from accountant.client.errors import Body

Amounts = dict[str, Decimal]
"""A privacy loss in every currency that is kept."""


def amount(text: str) -> Decimal:
    """Return an amount as the service spells it."""
    return Decimal("Infinity") if text == "infinite" else Decimal(text)


def amounts(texts: Mapping[str, str]) -> Amounts:
    """Return a charge."""
    return {currency: amount(text) for currency, text in texts.items()}


class Document:
    """An answer: a view of its JSON document."""

    __slots__ = ("body",)

    def __init__(self, body: Body) -> None:
        self.body = body

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.body == other.body

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = [name for name, kind in vars(type(self)).items() if isinstance(kind, property)]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({shown})"


class Settlement(Document):
    """How a grant ended."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The grant's id."""
        return str(self.body["id"] if "id" in self.body else self.body["change"]["grant"])

    @property
    def state(self) -> str:
        """``committed``, ``released`` or ``expired``; ``proposed`` if it is open until a second
        person confirms.
        """
        return str(self.body["state"])

    @property
    def proposal(self) -> int | None:
        """The number of the proposal, if a second person has to confirm."""
        return self.body.get("proposal")

    @property
    def charged(self) -> Amounts:
        """What is booked for good; empty where nothing is."""
        return amounts(self.body.get("charged", {}))

    @property
    def note(self) -> str | None:
        """Why nothing changed: a commit after the expiry is only noted."""
        return self.body.get("note")

    @property
    def flags(self) -> tuple[str, ...]:
        """The rules that fired on what is given back."""
        return tuple(flag["rule"] for flag in self.body.get("flags", ()))


class Recorded(Document):
    """What already ran, as booked."""

    __slots__ = ()

    @property
    def sequence(self) -> int:
        """The event that books it."""
        return int(self.body["sequence"])

    @property
    def charge(self) -> Amounts:
        """What was charged."""
        return amounts(self.body["charge"])

    @property
    def overrun(self) -> bool:
        """True if a limit that blocks was exceeded."""
        return bool(self.body["overrun"])

    @property
    def flags(self) -> tuple[str, ...]:
        """The rules that fired."""
        return tuple(flag["rule"] for flag in self.body["flags"])

    @property
    def decision_id(self) -> str:
        """The id of the whole decision."""
        return str(self.body["decision"])


class Counted(Document):
    """The answers of a session so far."""

    __slots__ = ()

    @property
    def positives(self) -> int:
        """Positive answers in all."""
        return int(self.body["positives"])

    @property
    def negatives(self) -> int:
        """Negative answers in all."""
        return int(self.body["negatives"])


class Republished(Document):
    """An answer that is published again."""

    __slots__ = ()

    @property
    def answer(self) -> str:
        """Its SHA-256, in hex."""
        return str(self.body["answer"])


class Finding(Document):
    """What one rule found."""

    __slots__ = ()

    @property
    def rule(self) -> str:
        """The rule's id."""
        return str(self.body["rule"])

    @property
    def action(self) -> str:
        """``block``, ``approve`` or ``flag``, when it fires."""
        return str(self.body["action"])

    @property
    def fired(self) -> bool:
        """Whether it fired."""
        return bool(self.body["fired"])

    @property
    def code(self) -> str:
        """The problem code that it stands for."""
        return str(self.body["code"])

    @property
    def text(self) -> str:
        """The comparison in words."""
        return str(self.body["text"])


class Decision(Document):
    """The outcome of a request, and the findings of all rules."""

    __slots__ = ()

    @property
    def outcome(self) -> str:
        """``allow``, ``flag``, ``approve`` (a person has to) or ``block``."""
        return str(self.body["outcome"])

    @property
    def rules(self) -> tuple[Finding, ...]:
        """Every rule that was evaluated, those that fired first."""
        return tuple(map(Finding, self.body["rules"]))

    @property
    def exhausted(self) -> Body:
        """Of a refusal, the ``accounts`` in which the charge does not fit, as a number, those that
        are ``listed``, and the ``address`` of all if these are not all. Empty for any other.
        """
        return dict(self.body.get("exhausted", {}))


class Preview(Document):
    """The decision that a request would get now."""

    __slots__ = ()

    @property
    def outcome(self) -> str:
        """``allow``, ``flag``, ``approve`` (a person has to) or ``block``."""
        return str(self.body["decision"]["outcome"])

    @property
    def rules(self) -> tuple[Finding, ...]:
        """Every rule that was evaluated, those that fired first."""
        return tuple(map(Finding, self.body["decision"]["rules"]))

    @property
    def charge(self) -> Amounts:
        """The cost of all mechanisms together."""
        return amounts(self.body["charge"])

    @property
    def fits(self) -> int:
        """How many requests like this the limits admit."""
        return int(self.body["fits"])


class Foreseen(Document):
    """What one of several requests would get."""

    __slots__ = ()

    @property
    def outcome(self) -> str:
        """``allow``, ``flag`` or ``block``."""
        return str(self.body["outcome"])

    @property
    def charge(self) -> Amounts:
        """The cost of all its mechanisms together."""
        return amounts(self.body["charge"])

    @property
    def flags(self) -> tuple[str, ...]:
        """The rules that fired."""
        return tuple(flag["rule"] for flag in self.body["flags"])


class Previews(Document):
    """What several requests would get, one after another."""

    __slots__ = ()

    @property
    def items(self) -> tuple[Foreseen, ...]:
        """One for each request, in their order."""
        return tuple(map(Foreseen, self.body["items"]))

    @property
    def granted(self) -> int:
        """How many would be granted."""
        return int(self.body["granted"])


class Balance(Document):
    """One group's place under one limit, in epsilon."""

    __slots__ = ()

    @property
    def group(self) -> str:
        """A value of the dimension, or everyone."""
        return str(self.body["group"])

    @property
    def spent(self) -> Decimal:
        """Spent for good, rounded up."""
        return amount(self.body["spent"])

    @property
    def reserved(self) -> Decimal:
        """Held by open grants."""
        return amount(self.body["reserved"])

    @property
    def remaining(self) -> Decimal:
        """Left, rounded down."""
        return amount(self.body["remaining"])

    @property
    def over(self) -> bool:
        """More is spent or reserved than the limit allows."""
        return bool(self.body["over"])


class Account(Document):
    """One limit rule on one scope."""

    __slots__ = ()

    @property
    def rule(self) -> str:
        """The rule's id."""
        return str(self.body["rule"])

    @property
    def dataset(self) -> str:
        """The dataset's id, or * for the total over all."""
        return str(self.body["dataset"])

    @property
    def client(self) -> str:
        """The client of a sub-limit, or empty."""
        return str(self.body["client"])

    @property
    def gate(self) -> str:
        """How losses are added up."""
        return str(self.body["gate"])

    @property
    def epsilon(self) -> Decimal:
        """The limit's epsilon."""
        return amount(self.body["limit"]["epsilon"])

    @property
    def delta(self) -> Decimal:
        """The limit's delta."""
        return amount(self.body["limit"]["delta"])

    @property
    def total(self) -> Balance:
        """The most charged group, in each currency."""
        return Balance(self.body["total"])

    @property
    def groups(self) -> tuple[Balance, ...]:
        """One a value of the dimension that was asked for."""
        return tuple(map(Balance, self.body["groups"]))


class Accounts(Document):
    """All accounts of a population."""

    __slots__ = ()

    @property
    def population(self) -> str:
        """The population's name."""
        return str(self.body["population"])

    @property
    def sequence(self) -> int:
        """The last event that is counted in."""
        return int(self.body["sequence"])

    @property
    def accounts(self) -> tuple[Account, ...]:
        """One a limit rule and scope."""
        return tuple(map(Account, self.body["accounts"]))

    def __getitem__(self, rule: str) -> Account:
        """The account of a rule that has one. Raise KeyError for none or several."""
        found = [account for account in self.accounts if account.rule == rule]
        if len(found) != 1:
            raise KeyError(f"{len(found)} accounts of rule {rule!r}")
        return found[0]


class GrantState(Document):
    """A grant as it is now."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """Its id."""
        return str(self.body["id"])

    @property
    def state(self) -> str:
        """``reserved``, ``committed``, ``released`` or ``expired``; of a request that waits
        ``waiting``, ``timed_out``, ``cancelled`` or ``declined``.
        """
        return str(self.body["state"])

    @property
    def client(self) -> str:
        """The name of the key that asked."""
        return str(self.body["client"])

    @property
    def dataset(self) -> str | list[str]:
        """The dataset, or all datasets of a join."""
        found: str | list[str] = self.body["dataset"]
        return found

    @property
    def opened(self) -> str:
        """When it was reserved (RFC 3339)."""
        return str(self.body["opened"])

    @property
    def expires(self) -> str:
        """When it expires, or would have."""
        return str(self.body["expires"])

    @property
    def reserved(self) -> Amounts:
        """What was set aside."""
        return amounts(self.body["reserved"])

    @property
    def charged(self) -> Amounts | None:
        """What is booked for good; None while it is open."""
        found = self.body.get("charged")
        return None if found is None else amounts(found)
