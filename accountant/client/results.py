"""Answers of the service, as values. ``body`` of each is the whole JSON document.

Amounts are exact decimals; one that has no bound is ``Decimal("Infinity")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self

from accountant.client.errors import Body

Amounts = dict[str, Decimal]
"""A privacy loss in every currency that is kept."""


def amount(text: str) -> Decimal:
    """Return an amount as the service spells it."""
    return Decimal("Infinity") if text == "infinite" else Decimal(text)


def amounts(texts: Mapping[str, str]) -> Amounts:
    """Return a charge."""
    return {currency: amount(text) for currency, text in texts.items()}


def _charge(body: Body, name: str) -> Amounts | None:
    found = body.get(name)
    return None if found is None else amounts(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An answer."""

    body: Body = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Settlement(Document):
    """How a grant ended, and what is ``charged``, empty where nothing is. A commit after the expiry
    changes nothing: ``note`` says so.
    """

    id: str
    state: str
    charged: Amounts
    note: str | None
    flags: tuple[str, ...]

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read the answer."""
        flags = tuple(flag["rule"] for flag in body.get("flags", ()))
        charged, note = amounts(body.get("charged", {})), body.get("note")
        return cls(body["id"], body["state"], charged, note, flags, body=body)


@dataclass(frozen=True, slots=True)
class Recorded(Document):
    """What already ran, as booked. ``overrun``: a limit that blocks was exceeded."""

    sequence: int
    charge: Amounts
    overrun: bool
    flags: tuple[str, ...]
    decision_id: str

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read the answer."""
        flags = tuple(flag["rule"] for flag in body["flags"])
        charge, decision = amounts(body["charge"]), str(body["decision"])
        return cls(body["sequence"], charge, body["overrun"], flags, decision, body=body)


@dataclass(frozen=True, slots=True)
class Counted(Document):
    """The answers of a session so far."""

    positives: int
    negatives: int

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read the answer."""
        return cls(body["positives"], body["negatives"], body=body)


@dataclass(frozen=True, slots=True)
class Finding(Document):
    """What one rule found, in words."""

    rule: str
    action: str
    fired: bool
    code: str
    text: str

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read a rule's part of a decision."""
        names = ("rule", "action", "fired", "code", "text")
        return cls(*(body[name] for name in names), body=body)


@dataclass(frozen=True, slots=True)
class Decision(Document):
    """``outcome`` is allow, flag or block; the rules that fired come first."""

    outcome: str
    rules: tuple[Finding, ...]

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read a decision."""
        return cls(body["outcome"], tuple(map(Finding.of, body["rules"])), body=body)


@dataclass(frozen=True, slots=True)
class Preview(Document):
    """The decision that a request would get now, and how many like it fit."""

    outcome: str
    rules: tuple[Finding, ...]
    charge: Amounts
    fits: int

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read the answer."""
        decision = Decision.of(body["decision"])
        charge = amounts(body["charge"])
        return cls(decision.outcome, decision.rules, charge, body["fits"], body=body)


@dataclass(frozen=True, slots=True)
class Balance(Document):
    """One group's place under one limit, in epsilon."""

    group: str
    spent: Decimal
    reserved: Decimal
    remaining: Decimal
    over: bool

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read a balance."""
        spent, reserved = amount(body["spent"]), amount(body["reserved"])
        left = amount(body["remaining"])
        return cls(body["group"], spent, reserved, left, body["over"], body=body)


@dataclass(frozen=True, slots=True)
class Account(Document):
    """One limit rule on one scope."""

    rule: str
    scope: str
    dataset: str
    client: str
    gate: str
    epsilon: Decimal
    delta: Decimal
    total: Balance
    groups: tuple[Balance, ...]

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read an account."""
        scope = body["rule"], body["scope"], body["dataset"], body["client"], body["gate"]
        epsilon, delta = amount(body["limit"]["epsilon"]), amount(body["limit"]["delta"])
        groups = tuple(map(Balance.of, body["groups"]))
        return cls(*scope, epsilon, delta, Balance.of(body["total"]), groups, body=body)


@dataclass(frozen=True, slots=True)
class Accounts(Document):
    """All accounts of a population after the event ``sequence``."""

    population: str
    sequence: int
    accounts: tuple[Account, ...]

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read the answer."""
        accounts = tuple(map(Account.of, body["accounts"]))
        return cls(body["population"], body["sequence"], accounts, body=body)

    def __getitem__(self, rule: str) -> Account:
        """The account of a rule, if it has one only. Raise KeyError for none or several."""
        found = [account for account in self.accounts if account.rule == rule]
        if len(found) != 1:
            raise KeyError(f"{len(found)} accounts of rule {rule!r}")
        return found[0]


@dataclass(frozen=True, slots=True)
class GrantState(Document):
    """A grant as it is now. ``charged`` is None while it is open."""

    id: str
    state: str
    client: str
    dataset: str | list[str]
    opened: str
    expires: str
    reserved: Amounts
    charged: Amounts | None

    @classmethod
    def of(cls, body: Body) -> Self:
        """Read a grant."""
        about = body["id"], body["state"], body["client"], body["dataset"]
        times = body["opened"], body["expires"]
        return cls(*about, *times, amounts(body["reserved"]), _charge(body, "charged"), body=body)


def raw(body: Any) -> Body:
    """Return a document that has no type of its own."""
    return dict(body)
