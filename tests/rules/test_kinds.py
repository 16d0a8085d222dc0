"""What holds for rules of any kind: memory at another adoption, schemas, and how many fit."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

import orjson
import pytest
from effort import some
from pydantic import Field, ValidationError
from support import Book, hospital, laplace

from accountant.api.app import create_app
from accountant.api.description.openapi import schemas_of
from accountant.budget.errors import Invalid
from accountant.budget.policy import MAX_RULES, Policy
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Compared, Finding, Rule, Told, View
from accountant.config.settings import Settings
from accountant.ledger.events import MAX_BYTES, Event


class Quota(Rule):
    """At most ``grants`` grants may be made while the rule is in force."""

    field: ClassVar[str] = "grants"
    code: ClassVar[str] = "too-many-grants"
    reads: ClassVar[frozenset[str]] = frozenset({"memory"})
    remembers: ClassVar[bool] = True

    grants: Annotated[int, Field(ge=0)]

    def compare(self, view: View) -> Compared | None:
        """Fire if all grants were made."""
        return self.compared((view.memory(self.id) or 0) >= self.grants)

    def words(self, compared: Compared, told: Told) -> Finding:
        """Say how many grants there may be."""
        return self.finding(compared, f"at most {self.grants} grants")

    def remember(self, memory: Any, event: Event) -> Any:
        """Count the grants."""
        return (memory or 0) + (event.type == "grant.reserved.v1")


class Carrying(Quota):
    """A quota that counts on when its number of grants changes."""

    def begins(self, memory: Any, before: Rule) -> Any:
        """Keep the count of another quota."""
        return memory if isinstance(before, Quota) else None


@pytest.fixture(params=[Quota, Carrying])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Quota]:
    """A rule kind that is registered for one test."""
    monkeypatch.setitem(KINDS, Quota.field, request.param)
    found: type[Quota] = request.param
    return found


WIDE = "  - {id: wide, limit: {epsilon: 1000}}\n"


def quota(grants: int, action: str = "block") -> str:
    """The rules of a policy with a quota."""
    return WIDE + f"  - {{id: quota, grants: {grants}, action: {action}}}\n"


def adopt(book: Book, rules: str) -> None:
    """Adopt ``rules``; a second person agrees."""
    book.policy(rules, confirmed_by="officer")


def granted(book: Book, times: int) -> int:
    """Ask ``times`` times; return how many grants were made."""
    return sum(book.grant(laplace("0.1")).type == "grant.reserved.v1" for _ in range(times))


def replays(book: Book) -> None:
    """The ledger replays to the same memories."""
    replayed = book.replayed()
    assert replayed.findings == []
    assert replayed.state.memories == book.state.memories


def test_a_changed_rule_begins_anew_unless_its_kind_carries_on(kind: type[Quota]) -> None:
    """By default another number of grants is another rule, which has seen none of them."""
    book = hospital(quota(3))
    assert granted(book, 5) == 3
    adopt(book, quota(4))
    assert book.state.memories == {"quota": 3 if kind is Carrying else 0}
    assert granted(book, 6) == (1 if kind is Carrying else 4)
    replays(book)


def test_a_rule_keeps_its_memory_while_only_other_things_change(kind: type[Quota]) -> None:
    """Neither another rule, nor another order, nor another action makes it forget."""
    book = hospital(quota(3))
    assert granted(book, 2) == 2
    adopt(book, quota(3) + "  - {id: more, limit: {epsilon: 2000}}\n")
    adopt(book, quota(3, action="flag"))
    adopt(book, "".join(reversed(quota(3).splitlines(keepends=True))))
    assert book.state.memories == {"quota": 2}
    assert granted(book, 2) == 1
    replays(book)


@pytest.mark.parametrize("others", ["", "  - {id: other, grants: 99}\n"], ids=["none", "another"])
def test_a_rule_that_comes_back_begins_anew(kind: type[Quota], others: str) -> None:
    """A rule that was left out has no memory, also where another rule remembers meanwhile."""
    book = hospital(quota(3) + others)
    assert granted(book, 5) == 3
    adopt(book, WIDE + others)
    assert "quota" not in book.state.memories
    adopt(book, quota(3) + others)
    assert book.state.memories["quota"] == 0
    assert granted(book, 5) == 3
    replays(book)


def test_a_rule_of_another_kind_begins_anew(kind: type[Quota]) -> None:
    """A memory means something to its own kind only."""
    book = hospital(quota(3))
    assert granted(book, 1) == 1
    adopt(book, WIDE + "  - {id: quota, require: [purpose], action: flag}\n")
    assert book.state.memories == {}
    adopt(book, quota(3))
    assert book.state.memories == {"quota": 0}


def test_a_kind_that_is_registered_later_is_read_and_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading and schemas go by the kinds that are registered at that moment."""
    app = create_app(None, Settings(), None)
    rules = [{"id": "wide", "limit": {"epsilon": 1}}, {"id": "quota", "grants": 3}]
    document = {"policy": "p", "rules": rules}
    with pytest.raises(ValidationError):
        Policy.model_validate(document)
    assert "Quota" not in Policy.model_json_schema()["$defs"]
    assert "Quota" not in schemas_of(app)
    with monkeypatch.context() as patch:
        patch.setitem(KINDS, Quota.field, Quota)
        policy = Policy.model_validate(document)
        assert policy.to_json()["rules"][1] == {"id": "quota", "action": "block", "grants": 3}
        schema = Policy.model_json_schema()
        assert schema["$defs"]["Quota"]["properties"]["grants"]["type"] == "integer"
        assert {"$ref": "#/$defs/Quota"} in schema["properties"]["rules"]["items"]["anyOf"]
        described = schemas_of(app)
        assert {"$ref": "#/components/schemas/Quota"} in described["Rule"]["anyOf"]
        items = described["Policy"]["properties"]["rules"]["items"]
        assert items == {"$ref": "#/components/schemas/Rule"}
    assert "Quota" not in Policy.model_json_schema()["$defs"]
    assert "Quota" not in schemas_of(app)


def test_a_rule_without_a_kind_is_told_the_kinds(kind: type[Quota]) -> None:
    """The message names every registered kind."""
    with pytest.raises(ValidationError) as refusal:
        Policy.model_validate({"policy": "p", "rules": [{"id": "a"}]})
    assert f"a rule has one of: {', '.join(KINDS)}" in str(refusal.value)


def many(count: int, rule: str) -> str:
    """A limit, and ``count`` more rules with ids as long as they may be."""
    return WIDE + "".join(f"  - {{id: {f'r{n}':x<64}, {rule}}}\n" for n in range(count))


def limits(count: int, more: str) -> str:
    """Limits with a delta, each another, on datasets of their own."""
    each = "  - {{id: r{0}, limit: {{epsilon: {1}.{2:02}, delta: 1e-6}}, datasets: x{0}-*{3}}}\n"
    return "".join(each.format(n, 1 + n // 100, n % 100, more) for n in range(count))


@pytest.mark.parametrize(("more", "many"), some([("", MAX_RULES), (", gate: advanced", 190)], 2))
def test_as_many_limits_fit_as_a_policy_has_rules(more: str, many: int) -> None:
    """Limits with a delta too, on data that were used before; under other gates nearly as many."""
    book = hospital(WIDE)
    names = [f"x{n}-data" for n in range(many)]
    for name in names:
        book.dataset(name)
    for n in range(0, len(names), 20):
        book.record(laplace("0.01"), dataset=names[n : n + 20])
    book.policy(limits(many, more), confirmed_by="officer")
    assert len(book.stored[-1]) <= MAX_BYTES
    assert book.state.adopted is not None
    assert len(book.state.adopted.epochs) == many
    replays(book)


def test_an_adopting_event_has_room_for_three_hundred_limits() -> None:
    """It does not say again what follows from a rule: 300 limits with a delta, each another, would
    fit if a policy could have as many rules.
    """
    book = hospital(WIDE)
    book.policy(limits(MAX_RULES, ""), confirmed_by="officer")
    body = orjson.loads(book.stored[-1])
    assert body["epochs"]["r0"] == {"number": 1, "renyi": ["23", "15"], "start": "brought"}
    assert 300 * len(book.stored[-1]) < MAX_RULES * MAX_BYTES


@pytest.mark.parametrize("gate", some(["renyi", "basic", "advanced"], 2))
def test_a_policy_that_no_event_holds_is_refused(gate: str) -> None:
    """The refusal says how large the adopting event would be and what to do."""
    rule = f"limit: {{epsilon: 0.2, delta: 1e-6}}, gate: {gate}"
    for more, said, most in (
        (f", datasets: {'x' * 99}", r"would have (\d+) bytes.* has 200 rules, 200 of", MAX_BYTES),
        ("", r"would (?:have|keep up to) (\d+) bytes", MAX_BYTES - 4_096),
    ):
        with pytest.raises(Invalid) as refusal:
            hospital(many(MAX_RULES - 1, rule + more))
        assert refusal.value.code == "event-too-large"
        told = re.search(said, refusal.value.detail)
        assert told is not None
        assert int(told[1]) > most
    book = hospital(many(64, rule))
    assert book.grant(laplace("0.1")).type == "grant.reserved.v1"
    assert book.grant(laplace("0.3")).type == "grant.refused.v1"
    assert book.record(laplace("0.3")).type == "invocation.recorded.v1"
    replays(book)


def test_the_most_rules_leave_room_for_requests() -> None:
    """Under as many rules as a policy may have, all of which fire, a request fits into an event."""
    book = hospital(many(MAX_RULES - 1, "of: wide, at: 1%"))
    book.record(laplace("999"))
    assert book.grant(laplace("0.5")).type == "grant.reserved.v1"
    assert book.grant(laplace("5")).type == "grant.refused.v1"
    assert max(map(len, book.stored)) < MAX_BYTES - 16_384
