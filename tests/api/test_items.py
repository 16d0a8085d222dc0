"""Items of batches that came before are read as if they came for the first time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support import World, ask, laplace

from accountant.api import items as reading
from accountant.api import memory
from accountant.api.items import Items
from accountant.api.requests import body_of
from accountant.budget.commands import Asked, BatchRequest, alone

NUMBERS = (
    *("1", '"1"', "1.0", '"1.0"', "1e0", "10e-1", "-1", "true", "null", "[1]", '{"1":1}'),
    # The same as doubles, and beyond what 64 bits hold.
    *("1.0000000000000000001", "1.0000000000000000002", "1e400", "1e401"),
    *("18446744073709551616", "18446744073709551617", "36893488147419103232"),
)
"""Numbers and what looks like them, as JSON spells it."""
SOUND = {"sensitivity": ('"1"', "1", "1.0"), "scale": ('"2"', "2", "2.5"), "count": ("1", "2")}


def spelled(fields: dict[str, str]) -> str:
    """An object of JSON in these words."""
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def batch(*items: str) -> dict[str, Any]:
    """The body of a batch, as the door reads it."""
    return body_of(f'{{"items":[{",".join(items)}]}}'.encode())


@st.composite
def item(draw: st.DrawFn) -> str:
    """An item as a client might spell it; mostly sound, and few enough to come again."""
    noise = {name: draw(st.sampled_from(some)) for name, some in SOUND.items()}
    mechanism = {"kind": '"laplace"'} | noise
    fields = {
        "type": draw(st.sampled_from(('"ask_grant"', '"record_invocations"'))),
        "dataset": '"d"',
        "mechanisms": f"[{spelled(mechanism)}]",
    }
    odd = draw(st.integers(0, 9))
    if odd == 0:
        name = draw(st.sampled_from(("purpose", "dataset", "ttl_seconds", "more")))
        fields[name] = draw(st.sampled_from(NUMBERS))
    elif odd == 1:
        name = draw(st.sampled_from(sorted(SOUND)))
        fields["mechanisms"] = f"[{spelled(mechanism | {name: draw(st.sampled_from(NUMBERS))})}]"
    elif odd == 2:
        fields = {"type": '"commit_grant"', "grant": draw(st.sampled_from(('"g1"', '"g2"')))}
    elif odd == 3:
        fields["purpose"] = draw(st.sampled_from(('"why"', r'"wh\u0079"', '"1"')))
    elif odd == 4:
        fields = dict(reversed(fields.items()))
    return spelled(fields)


def plainly(by: str, body: dict[str, Any]) -> Any:
    """What a batch asks for, read by the definition; or what is wrong with it."""
    try:
        request = BatchRequest.model_validate(body)
    except ValidationError as error:
        return json.loads(error.json(include_input=False))
    order = request.order
    return [Asked(by, alone(request.items[place])) for place in order], order


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


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows by each item that is read anew."""
    found: list[Any] = []

    def noted(one: Any) -> Any:
        found.append(one)
        return alone(one)

    monkeypatch.setattr(reading, "alone", noted)
    return found


@given(st.lists(st.lists(item(), min_size=1, max_size=4), min_size=1, max_size=8))
def test_what_came_before_is_read_the_same(bodies: list[list[str]]) -> None:
    """Whatever came before: the same commands in the same order, or the same errors at the same
    places.
    """
    items = Items()
    for turn, listed in enumerate([*bodies, *bodies]):
        body, by = batch(*listed), f"client {turn}"
        assert canonical(remembering(items, by, body)) == canonical(plainly(by, body))


@pytest.mark.parametrize("place", ["purpose", "dataset", "sensitivity", "scale", "ttl_seconds"])
def test_what_looks_alike_is_told_apart(place: str) -> None:
    """A number is not its text, one is not true, and what doubles do not tell apart is different:
    each is read for what it is, whichever came before.
    """
    items = Items()
    for number in [*NUMBERS, *NUMBERS[::-1], *NUMBERS]:
        fields = {"sensitivity": "1", "scale": "1", "dataset": '"d"', place: number}
        noise = {name: fields.pop(name) for name in ("sensitivity", "scale")}
        mechanism = spelled({"kind": '"laplace"'} | noise)
        body = batch(spelled({"type": '"ask_grant"', "mechanisms": f"[{mechanism}]"} | fields))
        assert canonical(remembering(items, "a", body)) == canonical(plainly("a", body))


def test_what_comes_again_is_not_read_again(new: list[Any]) -> None:
    """Grants and records are remembered, one by one, also in the middle of others; what names a
    grant does not come again, and is not.
    """
    items = Items()
    asks = [{"type": "ask_grant", **ask(laplace(cost))} for cost in ("0.1", "0.2", "0.3")]
    items.read("a", {"items": asks[:2]})
    assert len(new) == 2
    items.read("b", {"items": [asks[1], asks[2], asks[0], asks[2]]})
    assert len(new) == 4  # twice the one that was new
    items.read("a", {"items": asks})
    assert len(new) == 4
    past = {"items": [{"type": "record_invocations", **ask(laplace("0.1"))}]}
    ends = {"items": [{"type": "commit_grant", "grant": "g1"}]}
    for body, read in ((past, 5), (past, 5), (ends, 6), (ends, 7)):
        items.read("a", body)
        assert len(new) == read


def test_a_body_without_a_list_is_refused_as_ever() -> None:
    """No items, none at all, too many, something else in their place, or beside them."""
    items = Items()
    sound = {"type": "ask_grant", **ask(laplace("0.1"))}
    odd: list[dict[str, Any]] = [
        *({}, {"items": []}, {"items": None}, {"items": "abc"}, {"items": {"0": {}}}),
        *({"items": [None]}, {"items": [{"type": []}]}, {"items": [{"type": {}}]}),
        *({"items": [sound] * 1_001}, {"items": [sound], "more": 1}),
    ]
    for body in odd * 2:
        assert remembering(items, "a", body) == plainly("a", body)


def test_nothing_is_done_with_what_will_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of half a million items costs no more than counting them."""
    monkeypatch.setattr(reading, "_mark", lambda _: pytest.fail("looked at"))
    with pytest.raises(ValidationError, match="1000 items"):
        Items().read("a", {"items": [0] * 499_000})


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch, new: list[Any]) -> None:
    """Whoever sends ever new items, or long ones, does not fill the memory, and is answered."""
    monkeypatch.setattr(memory, "MOST", 8)
    items = Items()
    for number in range(50):
        body = {"items": [{"type": "ask_grant", **ask(laplace("0.1"), purpose=f"p{number}")}] * 2}
        assert canonical(items.read("a", body)) == canonical(plainly("a", body))
        assert len(items._memory._kept) <= 8
    long = {"type": "ask_grant", **ask(laplace("0.1"), purpose="x" * 999)}
    new.clear()
    for _ in range(3):
        items.read("a", {"items": [long]})
    assert len(new) == 3


def test_each_client_asks_in_its_own_name(database: str) -> None:
    """What is remembered is what was asked, not who asked nor what it came to: each batch is a
    spending of its own, by whose key it carries.
    """
    world = World(database).hospital()
    body = {"items": [{"type": "ask_grant", **ask(laplace("0.2"), purpose="why")}] * 2}
    first = world.post("/batch", body, key="a")
    second = world.post("/batch", body, key="a", who="admin")
    assert (first.status_code, second.status_code) == (201, 201)
    grants = [json.loads(e) for e in world.stored() if b'"grant.reserved.v1"' in e]
    assert [grant["by"] for grant in grants] == ["pipeline"] * 2 + ["admin"] * 2
    assert len({grant["sequence"] for grant in grants}) == 4
    assert world.post("/batch", body, key="c").status_code == 403
