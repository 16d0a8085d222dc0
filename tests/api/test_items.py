"""Items of batches that came before are read as if they came for the first time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support import World, ask, laplace

from accountant.api import items as items_module
from accountant.api.access import body_of
from accountant.api.items import Items
from accountant.budget.commands import Asked, BatchRequest

ONE = ("1", '"1"', "1.0", '"1.0"', "1e0", "true", "null", "-1", "18446744073709551616", "[1]")
"""Numbers and what looks like them, as JSON spells it."""


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """The numbers of a mechanism; mostly sound."""
    some = st.sampled_from(ONE) if draw(st.integers(0, 3)) == 0 else st.sampled_from(ONE[:2])
    return ",".join(f'"{name}":{draw(some)}' for name in ("sensitivity", "scale", "count"))


@st.composite
def listed(draw: st.DrawFn) -> str:
    """One item, sound or not, as a client might spell it."""
    fields = {
        "type": draw(st.sampled_from(('"ask_grant"', '"record_invocations"', '"commit_grant"'))),
        "dataset": draw(st.sampled_from(('"d"', '"e"', "1"))),
        "mechanisms": f'[{{"kind":"laplace",{draw(numbers())}}}]',
        "purpose": draw(st.sampled_from((*ONE, '"why"', r'"wh\u0079"'))),
        "subjects": draw(st.sampled_from(("null", '{"sex":["f"]}', '{"sex":["f","m"]}'))),
    }
    if fields["type"] == '"commit_grant"':
        fields = {"type": fields["type"], "grant": '"g1"'}
    if draw(st.integers(0, 9)) == 0:
        fields["more"] = draw(st.sampled_from(ONE))
    names = draw(st.permutations(list(fields)))
    return "{" + ",".join(f'"{name}":{fields[name]}' for name in names) + "}"


def plainly(by: str, body: dict[str, Any]) -> Any:
    """What a batch asks for, read by the definition; or what is wrong with it."""
    try:
        request = BatchRequest.model_validate(body)
    except ValidationError as error:
        return json.loads(error.json(include_input=False))
    return [Asked(by, command) for command in request.commands()], request.order


def remembering(items: Items, by: str, body: dict[str, Any]) -> Any:
    """The same, read by who remembers."""
    try:
        return items.read(by, body)
    except ValidationError as error:
        return json.loads(error.json(include_input=False))


def canonical(read: Any) -> Any:
    """With the bytes that the ledger would hold."""
    if not isinstance(read, tuple):
        return read
    asked, order = read
    return [(one.by, one.key, one.command, one.canonical) for one in asked], order


@given(st.lists(st.lists(listed(), min_size=1, max_size=4), min_size=1, max_size=8))
def test_what_came_before_is_read_the_same(bodies: list[list[str]]) -> None:
    """Whatever came before, and however numbers are spelled: the same commands in the same order,
    or the same errors at the same places.
    """
    items = Items()
    for turn, body in enumerate([*bodies, *bodies]):
        read = body_of(f'{{"items":[{",".join(body)}]}}'.encode())
        by = f"client {turn}"
        assert canonical(remembering(items, by, read)) == canonical(plainly(by, read))


@pytest.mark.parametrize("place", ["purpose", "dataset", "sensitivity", "count", "ttl_seconds"])
def test_what_looks_alike_is_told_apart(place: str) -> None:
    """A number is not its text, one is not true, and 1.0 is not 1: where only one of them is sound,
    the others are refused also after it.
    """
    items = Items()
    for spelled in [*ONE, *ONE[::-1], *ONE]:
        fields = {"sensitivity": "1", "count": "1", "dataset": '"d"', place: spelled}
        noise = {name: fields.pop(name) for name in ("sensitivity", "count")}
        stated = ",".join(f'"{name}":{value}' for name, value in noise.items())
        rest = ",".join(f'"{name}":{value}' for name, value in fields.items())
        mechanism = f'{{"kind":"laplace","scale":1,{stated}}}'
        item = f'{{"type":"ask_grant","mechanisms":[{mechanism}],{rest}}}'
        body = body_of(f'{{"items":[{item}]}}'.encode())
        assert canonical(remembering(items, "a", body)) == canonical(plainly("a", body))


def test_a_body_without_a_list_is_refused_as_ever() -> None:
    """No items, none at all, or something else in their place, or beside them."""
    items = Items()
    sound = {"type": "ask_grant", **ask(laplace("0.1"))}
    odd: list[dict[str, Any]] = [
        {},
        {"items": []},
        {"items": None},
        {"items": "abc"},
        {"items": {"0": {}}},
        {"items": [None]},
    ]
    for body in [*odd, {"items": [sound], "more": 1}] * 2:
        assert remembering(items, "a", body) == plainly("a", body)
        assert canonical(items.read("a", {"items": [sound]}))


def test_only_so_many_are_remembered(monkeypatch: Any) -> None:
    """Whoever sends ever new items does not fill the memory, and is answered all the same."""
    monkeypatch.setattr(items_module, "_REMEMBERED", 8)
    items = Items()
    for number in range(50):
        body = {"items": [{"type": "ask_grant", **ask(laplace("0.1"), purpose=f"p{number}")}] * 2}
        assert canonical(items.read("a", body)) == canonical(plainly("a", body))
        assert len(vars(items)["_read"]) <= 8
    long = {"type": "ask_grant", **ask(laplace("0.1"), purpose="x" * 900, justification="y" * 900)}
    before = len(vars(items)["_read"])
    items.read("a", {"items": [long]})
    assert len(vars(items)["_read"]) == before


def test_the_same_items_again_are_charged_again(database: str) -> None:
    """What is remembered is what was asked, not what it came to: each batch is a spending of its
    own.
    """
    world = World(database).hospital()
    body = {"items": [{"type": "ask_grant", **ask(laplace("0.2"), purpose="why")}] * 2}
    first, second = (world.post("/batch", body, key=key) for key in "ab")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["sequence"] != second.json()["sequence"]
    assert world.post("/batch", body, key="c").status_code == 403
