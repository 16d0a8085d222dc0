"""A rule reads nothing but what its kind declares: whoever knows ``reads`` knows what it needs.

Every kind of ``KINDS`` is held to it without being named here: rules are made from its schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Any, ClassVar

import pytest
from effort import HEAVY
from pydantic import ValidationError
from support import NON_PRIVATE, SECOND, Book, declared, gaussian, laplace, make, sparse_vector

from accountant.budget.commands import AdoptPolicy
from accountant.budget.errors import Problem
from accountant.budget.policy import Policy
from accountant.budget.request import prepare
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Compared, Rule, View
from accountant.ledger.events import digest

DIMENSIONS = {"age": ["17", "22"], "sex": ["f", "m"]}
LIMIT = {"id": "a", "limit": {"epsilon": "1", "delta": "0.001"}, "gate": "basic"}
METHODS = {"used", "locked", "memory", "covers"}
VIEW = set(View.__annotations__) | METHODS
"""All that there is to read."""

CANDIDATES: tuple[Any, ...] = (
    ["d"],
    ["pipe"],
    ["study"],
    ["laplace"],
    ["purpose"],
    {"epsilon": "0.3"},
    "a",
    "50%",
    "1h",
    "d",
    "*",
    1,
    "0.3",
    3_600,
    "2026-09-21T00:00:00Z",
    True,
    "flag",
    "client",
    "datasets",
    "basic",
    "none",
    ["a"],
    {"delta": "0.1"},
)
"""Values that some field of some kind may have; those of the schema are tried before them. A few of
each field are tried, so what the ledger below has comes first.
"""
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "part_of": [{"id": "r", "part_of": "a", "limit": {"epsilon": "0.4"}}]
}
"""By a kind's field: rules for kinds that none of these values fit."""
FITTING: dict[str, list[Any]] = {
    "subjects": [{"sex": ["f"]}],
    "relaxed": [[{"when": {"purposes": ["study"]}, "epsilon": "9", "why": "x"}]],
}
"""By a field: values for those that name what is there."""


def values(schema: dict[str, Any], field: str) -> Iterator[Any]:
    """What might do for a field."""
    if field in FITTING:
        yield from FITTING[field]
        return
    of = schema["properties"][field]
    for one in (of, *of.get("anyOf", ())):
        yield from one.get("examples", ())
        yield from one.get("enum", ())
        yield from ([each] for each in one.get("items", {}).get("enum", ()))
        if "const" in one:
            yield one["const"]
    yield from CANDIDATES


def accepted(kind: type[Rule], rule: dict[str, Any]) -> bool:
    """Whether a policy may have this rule."""
    try:
        made = Policy.model_validate({"policy": "p", "rules": [LIMIT, rule]})
    except ValidationError:
        return False
    return type(made.rules[-1]) is kind


def made(kind: type[Rule]) -> list[dict[str, Any]]:
    """Rules of a kind: a few of the smallest, and with each value that an optional field takes."""
    schema = kind.model_json_schema()
    required = [name for name in schema.get("required", ()) if name != "id"]
    own = list(dict.fromkeys([kind.field, *required]))
    choices = [list(values(schema, name)) for name in own]
    tried = ({"id": "r"} | dict(zip(own, some, strict=True)) for some in product(*choices))
    found = EXAMPLES.get(kind.field, []) + list(
        islice((rule for rule in islice(tried, 50_000) if accepted(kind, rule)), 4)
    )
    assert found, f"no rule of kind {kind.field!r} could be made: give an example in EXAMPLES"
    optional = [name for name in schema["properties"] if name not in {"id", *own}]
    for name in optional:
        tried = (found[0] | {name: value} for value in values(schema, name))
        found += islice((rule for rule in tried if accepted(kind, rule)), None if HEAVY else 3)
    return found


class Watched:
    """A view that notes what is read of it."""

    def __init__(self, view: View) -> None:
        self._view, self.read = view, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._view, name)


def ledger(rules: Iterable[dict[str, Any]]) -> Book:
    """A ledger under these rules in which much has been spent, reserved and refused."""
    book, rules = Book(), list(rules)
    units = {rule["unit"]: {"part_of": "person"} for rule in rules if "unit" in rule}
    book.register(DIMENSIONS, units=units)
    for name in ("d", "e"):
        book.dataset(name)
    policy = Policy.model_validate({"policy": "p", "rules": list(rules)}).to_json()
    book.ask(AdoptPolicy(policy=policy, source_digest=digest(policy)), "admin", None, "officer")
    for by, command in requests(*_parts(book)):
        try:
            book.ask(command, by)
        except Problem:
            continue
        book.now += 600 * SECOND
    return book


def _parts(book: Book) -> list[str]:
    """The allotments of the policy in force."""
    assert book.state.adopted is not None
    return [one.id for each in book.state.adopted.policy.allotments.values() for one in each]


def requests(*parts: str) -> Iterator[tuple[str, Any]]:
    """Requests of all sorts, also those that draw from these allotments."""
    groups: list[Any] = [None, {"sex": ["f"]}, [{"sex": ["m"]}, {"age": ["17"]}]]
    costs = [
        [laplace("0.1")],
        [gaussian("0.05"), declared("0.01", "0.0001")],
        [laplace("0.02", claimed={"epsilon": "0.01"})],
        [NON_PRIVATE],
        [laplace("9")],
    ]
    said: list[dict[str, Any]] = [{}, {"purpose": "study"}, {"purpose": "x", "justification": "y"}]
    for number, (mechanisms, group, words) in enumerate(product(costs, groups, said)):
        kind = "record_invocations" if number % 5 == 4 else "ask_grant"
        dataset, by = "de"[number % 3 == 2], ("pipe", "one")[number % 2]
        more: dict[str, Any] = {"mechanisms": mechanisms, "subjects": group} | words
        more["allotment"] = parts[0] if parts and number % 2 else None
        yield by, make(kind, dataset=dataset, **more)
    yield "pipe", make("open_sparse_vector", dataset="d", mechanism=sparse_vector())


def watched(book: Book, name: str) -> Iterator[tuple[set[str], Compared | None]]:
    """What rule ``name`` reads of each request, and what it says."""
    assert book.state.adopted is not None
    [rule] = [rule for rule in book.state.adopted.policy.rules if rule.id == name]
    for by, command in requests(*_parts(book)):
        request = prepare(book.state, by, command, book.now)
        view = Watched(View(book.state, request))
        said = rule.compare(view)  # type: ignore[arg-type]
        assert said == rule.compare(View(book.state, request))
        yield view.read, said
    for by in ("pipe", "one") if "back" in rule.reads else ():
        given = View.of_return(book.state, by, request.total, book.now)
        view = Watched(given)
        said = rule.compare(view)  # type: ignore[arg-type]
        assert said == rule.compare(given)
        yield view.read, said


@pytest.mark.parametrize("field", KINDS)
def test_a_rule_reads_what_it_declares(field: str) -> None:
    """Of every request, under every variant of the rule, nothing else is read; and all of it is, by
    some rule of the kind: a declaration that has grown old misleads.
    """
    kind = KINDS[field]
    assert kind.reads <= VIEW
    said, found = [], set[str]()
    for rule in made(kind):
        for read, compared in watched(ledger([LIMIT, rule]), "r"):
            assert read <= kind.reads, f"{rule} reads {sorted(read - kind.reads)}, undeclared"
            said.append(compared)
            found |= read
    assert any(one is not None for one in said), "the rule applied to nothing"
    assert found == kind.reads


class Nosy(Rule):
    """A rule that looks at more than it says."""

    field: ClassVar[str] = "nosy"
    code: ClassVar[str] = "nosy"
    reads: ClassVar[frozenset[str]] = frozenset({"datasets"})

    nosy: bool

    def compare(self, view: View) -> Compared | None:
        """It looks at who asks, if the dataset is another one."""
        return self.compared(view.datasets != ("d",) and view.client == "one")


def test_a_rule_that_reads_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new kind is held to its declaration without being named here."""
    monkeypatch.setitem(KINDS, Nosy.field, Nosy)
    with pytest.raises(AssertionError, match=r"reads \['client'\], undeclared"):
        test_a_rule_reads_what_it_declares(Nosy.field)
