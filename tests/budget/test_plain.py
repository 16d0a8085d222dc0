"""What is read without the models is what the models make of it."""

from __future__ import annotations

from typing import Any

import orjson
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from accountant.budget.commands import Mechanisms, SubjectsField, plain
from accountant.ledger.events import canonical
from accountant.privacy.mechanisms import KINDS, PLAIN

MECHANISMS: TypeAdapter[Any] = TypeAdapter(Mechanisms)
SUBJECTS: TypeAdapter[Any] = TypeAdapter(SubjectsField)

amounts = st.one_of(
    st.sampled_from(["0", "1", "0.1", "00.1", "1e-3", "-1", "1.50", "", "0.0", "1" * 21]),
    st.decimals(0, 10**6, places=4).map(str),
    st.integers(-2, 10),
)
bodies = st.dictionaries(
    st.sampled_from(["kind", "sensitivity", "scale", "count", "delta", "group_size"]),
    st.one_of(amounts, st.sampled_from([*KINDS, True, None, {"l1": "1"}])),
).flatmap(lambda body: st.sampled_from([body, *({**body, "kind": kind} for kind in PLAIN)]))
names = st.one_of(st.text(max_size=4), st.sampled_from(["a", "b", "x" * 201, 1, None]))
values = st.one_of(
    st.lists(names, max_size=3),
    st.dictionaries(st.sampled_from(["from", "to", "bits"]), names),
    names,
)
groups = st.dictionaries(st.sampled_from(["age", "sex", "A", "", "a.b"]), values)


def by_model(adapter: TypeAdapter[Any], data: bytes) -> tuple[Any, bytes] | None:
    """What the models make of ``data``; None if they refuse it."""
    try:
        found = adapter.validate_python(orjson.loads(data))
    except ValidationError:
        return None
    shown = adapter.dump_python(found, mode="json", by_alias=True, exclude_defaults=True)
    return found, canonical(shown)


@settings(max_examples=examples(400))
@given(st.lists(bodies, min_size=1, max_size=2))
@example([{"kind": "laplace", "sensitivity": "1", "scale": "10", "count": 3}])
@example([{"kind": "gaussian", "sensitivity": "1", "scale": "10"}])
def test_mechanisms_are_what_the_models_make_of_them(listed: list[Any]) -> None:
    """Whatever is read plainly is read alike, byte for byte, by the models."""
    data = orjson.dumps(listed)
    if (found := plain.mechanisms(data)) is not None:
        assert found == by_model(MECHANISMS, data)
        assert [vars(one) for one in found[0]] == [
            vars(one) for one in MECHANISMS.validate_json(data)
        ]


@settings(max_examples=examples(400))
@given(groups)
@example({"age": ["1", "2"], "sex": {"from": "a", "to": "b"}})
def test_groups_are_what_the_models_make_of_them(group: dict[str, Any]) -> None:
    """Whatever is read plainly is read alike, byte for byte, by the models."""
    data = orjson.dumps(group)
    if (found := plain.subjects(data)) is not None:
        assert found == by_model(SUBJECTS, data)


def test_most_requests_are_read_plainly() -> None:
    """Each kind that needs nothing but amounts, and lists and ranges of names."""
    for kind, model in PLAIN.items():
        body = {"kind": kind} | dict.fromkeys(model.plain, "2.5")
        assert plain.mechanisms(orjson.dumps([body])) is not None
    assert plain.subjects(b'{"age": {"from": "1", "to": "2"}, "sex":["f"]}') is not None
    many = {"region": [f"region {i}" for i in range(100)] + ["x" * 200]}
    assert plain.subjects(orjson.dumps(many)) is not None
    assert plain.subjects(orjson.dumps({"region": [*many["region"], "x" * 201]})) is None


def test_a_key_that_stands_twice_is_left_to_the_strict_reader() -> None:
    """A parser would take the last."""
    body = b'[{"kind":"laplace","sensitivity":"1","scale":"1","scale":"9"}]'
    assert plain.mechanisms(body) is None
    assert plain.subjects(b'{"age":["1"],"age":["2"]}') is None
    assert plain.subjects(b'{"age":{"from":"1","to":"2","to":"3"}}') is None
