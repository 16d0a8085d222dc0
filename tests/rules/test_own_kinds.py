"""What a rule kind of another author may do, and what is caught before it reaches the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError
from support import World, hospital, laplace, last_replay

from accountant.budget.policy import Policy
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Compared, Finding, Rule, Told, View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.purpose import PurposeRule
from accountant.ledger.events import Event

WIDE = "  - {id: wide, limit: {epsilon: 1000}}\n"


class Odd(Rule):
    """Keeps and remembers what a test tells it to; ``odd`` names it."""

    field: ClassVar[str] = "odd"
    code: ClassVar[str] = "odd"
    reads: ClassVar[frozenset[str]] = frozenset({"memory"})
    remembers: ClassVar[bool] = True
    keeps: ClassVar[Any] = None
    remembered: ClassVar[Any] = None

    odd: str
    purposes: list[str] = []  # noqa: RUF012

    def compare(self, view: View) -> Compared | None:
        """Keep the value."""
        return self.compared(False, self.keeps)

    def words(self, compared: Compared, told: Told) -> Finding:
        """Say it."""
        return self.finding(compared, str(compared.seen))

    def remember(self, memory: Any, event: Event) -> Any:
        """Remember the value from the first grant on."""
        return self.remembered if event.type == "grant.reserved.v1" else memory


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> type[Odd]:
    """The kind, registered for one test."""
    monkeypatch.setitem(KINDS, Odd.field, Odd)
    return Odd


@pytest.mark.parametrize(
    "value", [0.5, 2**53, {"a": {1: 2}}, {1, 2}, {"ä": 1}, {"half": "\ud800"}, [[[1.0]]], object()]
)
def test_a_value_that_no_event_can_hold_is_never_written(
    odd: type[Odd], monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    """The request fails, nothing is recorded, and the ledger goes on."""
    book = hospital(WIDE + "  - {id: odd, odd: x}\n")
    size = len(book.stored)
    monkeypatch.setattr(odd, "keeps", value)
    with pytest.raises(TypeError, match="cannot stand in an event"):
        book.grant(laplace("0.1"))
    assert len(book.stored) == size
    monkeypatch.setattr(odd, "keeps", {"fine": ["1", 2**53 - 1, None, True]})
    assert book.grant(laplace("0.1")).type == "grant.reserved.v1"
    assert book.replayed().findings == []


@pytest.mark.parametrize("value", [{1: 2}, {1, 2}, (1, 2), {"a": (1,)}, float("nan"), 2**70])
def test_a_memory_that_a_snapshot_would_change_is_never_kept(
    odd: type[Odd], monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    """A memory is JSON, so that it is the same after a restart."""
    book = hospital(WIDE + "  - {id: odd, odd: x}\n")
    monkeypatch.setattr(odd, "remembered", value)
    with pytest.raises(TypeError, match="JSON does not hold"):
        book.grant(laplace("0.1"))


def test_a_purpose_that_a_rule_compares_stands_in_clear(odd: type[Odd]) -> None:
    """A kind with a field ``purposes`` sees these purposes, and no other."""
    book = hospital(WIDE + "  - {id: odd, odd: x, purposes: [census]}\n")
    seen = [book.grant(laplace("0.1"), purpose=text) for text in ("census", "another")]
    assert [event.body["command"]["purpose"] == "census" for event in seen] == [True, False]
    assert "sealed" in seen[1].body["command"]["purpose"]


class Half(Rule):
    """Another kind that refers to a limit."""

    field: ClassVar[str] = "half_of"
    code: ClassVar[str] = "half"
    reads: ClassVar[frozenset[str]] = frozenset()

    half_of: str
    purposes: list[str] = []  # noqa: RUF012

    def check(self, rules: Mapping[str, Rule]) -> None:
        """``half_of`` names a limit."""
        if not isinstance(rules.get(self.half_of), LimitRule):
            raise ValueError(f"{self.half_of} is no limit")


def rules_of(*rules: dict[str, Any]) -> Policy:
    """A policy with these rules."""
    return Policy.model_validate({"policy": "p", "rules": list(rules)})


def test_a_kind_checks_the_rules_that_it_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to a rule that is not there is an error of the policy."""
    monkeypatch.setitem(KINDS, Half.field, Half)
    limit = {"id": "wide", "limit": {"epsilon": "1"}}
    assert rules_of(limit, {"id": "half", "half_of": "wide"})
    with pytest.raises(ValidationError, match="lief is no limit"):
        rules_of(limit, {"id": "half", "half_of": "lief"})


def test_a_rule_is_of_the_kind_that_knows_all_its_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind may have a field that names another one."""
    monkeypatch.setitem(KINDS, Half.field, Half)
    limit = {"id": "wide", "limit": {"epsilon": "1"}}
    half = {"id": "half", "half_of": "wide", "purposes": ["census"]}
    listed = {"id": "listed", "purposes": ["census"]}
    kinds = [type(rule) for rule in rules_of(limit, half, listed).rules]
    assert kinds == [LimitRule, Half, PurposeRule]


class Some(Rule):
    """Applies to one client only, and cannot tell what it did not see."""

    field: ClassVar[str] = "some"
    code: ClassVar[str] = "some"
    reads: ClassVar[frozenset[str]] = frozenset({"client"})
    breaks: ClassVar[Callable[[], None]] = lambda: None

    some: str

    def compare(self, view: View) -> Compared | None:
        """Fire on the client; say nothing of others."""
        return self.compared(True, {"n": 1}) if view.client == self.some else None

    def words(self, compared: Compared, told: Told) -> Finding:
        """Say what was seen."""
        type(self).breaks()
        return self.finding(compared, f"seen {compared.seen['n']}")


def test_a_decision_is_answered_even_if_a_rule_has_no_text(
    world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rule did not apply it says nothing; where its text fails, the refusal names it."""
    monkeypatch.setitem(KINDS, Some.field, Some)
    made = world().hospital(
        "  - {id: wide, limit: {epsilon: 0.1}}\n  - {id: some, some: pipeline}\n"
    )
    body = {"dataset": "d", "mechanisms": [laplace("0.2")]}
    other = made.post("/grants", body, who="admin")
    assert other.status_code == 403, other.text
    assert [one["rule"] for one in other.json()["decision"]["rules"]] == ["wide"]
    assert (
        "seen 1" in made.post("/grants", body | {"mechanisms": [laplace("0.05")]}).json()["detail"]
    )

    def broken() -> None:
        raise LookupError("no words")

    monkeypatch.setattr(Some, "breaks", broken)
    refused = made.post("/grants", body | {"mechanisms": [laplace("0.05")]})
    assert refused.status_code == 403
    assert "rule some has no text for this" in refused.json()["detail"]
    assert made.http.get("/docs").status_code == 200


def test_a_program_that_lacks_a_kind_says_so(
    world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to try again what cannot be read."""
    monkeypatch.setitem(KINDS, Some.field, Some)
    made = world().hospital("  - {id: wide, limit: {epsilon: 1}}\n  - {id: some, some: pipeline}\n")
    stored = [row.body for row in made.service.stream("fair")]
    monkeypatch.delitem(KINDS, Some.field)
    answer = world().post("/grants", {"dataset": "d", "mechanisms": [laplace("0.1")]})
    assert (answer.status_code, answer.json()["type"]) == (
        503,
        "urn:accountant:problem:storage-failed",
    )
    for text in ("rules[1]: this program does not know its kind", "a retry does not help"):
        assert text in answer.json()["detail"]
    found = [each.reason for each in last_replay("fair", stored).findings]
    assert any("does not know its kind" in reason for reason in found), found
