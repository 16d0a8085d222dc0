"""The quick reader agrees with the strict one on every body that it accepts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accountant.api.quick import Quick
from accountant.api.requests import body_of
from accountant.budget.commands import (
    AskGrant,
    BatchRequest,
    Command,
    Envelope,
    RecordInvocations,
    decided_in,
)

KINDS: tuple[type[Command], ...] = (AskGrant, RecordInvocations)
LAPLACE = '{"kind":"laplace","sensitivity":"1","scale":"10"}'


def quick(kind: type[Command], body: bytes) -> Envelope | None:
    """The quick reader's result; None if it leaves the body to the strict one."""
    try:
        return Quick().one(kind, "pipe", body, "key")
    except Exception:  # noqa: BLE001 whatever it raises means the same
        return None


def strict(kind: type[Command], body: bytes) -> Envelope:
    """The strict reader's result."""
    return Envelope("pipe", kind.model_validate(body_of(body)), "key")


def same(kind: type[Command], body: bytes) -> bool:
    """Whether the quick reader took the body; then it read the same."""
    found = quick(kind, body)
    if found is None:
        return False
    expected = strict(kind, body)
    assert found.command == expected.command
    assert found.canonical == expected.canonical
    assert (found.by, found.key) == (expected.by, expected.key)
    return True


AMOUNTS = st.sampled_from(
    ["1", "0.1", "10", "1e-3", "0.10", "01", "+1", "-1", "1.", ".5", "", "NaN", "0", 1, 0, -1, 0.5,
     10**9, True, None, "9" * 50, "1" * 20 + "." + "1" * 19]
)  # fmt: skip
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["", " ", "nightly", "\x00", "\ud800", "dataset", "mechanisms", '"dataset"', "a" * 2_001]
)
SUBJECTS = st.sampled_from(
    [None, {}, [], {"a": ["x"]}, {"a": {"from": "0", "to": "7"}}, [{"a": ["x"]}, {"b": ["y", "x"]}],
     {"a": []}, {"a": {"from": "0"}}, {"a": {"bits": "AQ"}}, {"A": ["x"]}, "a", 1, {"a": ["x", 1]}]
)  # fmt: skip
MECHANISM = st.fixed_dictionaries(
    {"kind": st.sampled_from(["laplace", "gaussian", "discrete_laplace", "plan", "no", 1])},
    optional={
        "sensitivity": AMOUNTS,
        "scale": AMOUNTS,
        "count": AMOUNTS,
        "delta": AMOUNTS,
        "claimed": st.sampled_from([{"epsilon": "0.1"}, {"epsilon": "0.1", "delta": 0}, {}]),
        "more": AMOUNTS,
    },
)
BODIES = st.fixed_dictionaries(
    {"dataset": st.sampled_from(["d", "visits", "", "D", "a" * 65, "é", 1, None])},
    optional={
        "mechanisms": st.lists(MECHANISM, max_size=3) | st.just(None),
        "subjects": SUBJECTS,
        "purpose": TEXTS | st.none(),
        "justification": TEXTS,
        "ttl_seconds": st.sampled_from([1, 60, 3_600, 0, -1, 10**7, 60.0, "60", True, None]),
        "ran_at": st.sampled_from(["2026-01-01T00:00:00Z", "x"]),
        "more": st.just(1),
    },
)


@given(BODIES, st.sampled_from(KINDS), st.booleans())
def test_what_the_quick_reader_takes_the_strict_one_reads_the_same(
    body: Any, kind: type[Command], spaced: bool
) -> None:
    """The quick reader refuses any JSON or reads it as the strict one does."""
    text = json.dumps(body, separators=None if spaced else (",", ":"))
    same(kind, text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40), st.integers(0, 80))
@example(b"0", 60)
@example(b"\x01", 20)
def test_no_byte_that_is_put_anywhere_makes_a_difference(more: bytes, place: int) -> None:
    """Bytes put into a sound body are read alike or left to the strict reader, which refuses."""
    body = f'{{"dataset":"d","mechanisms":[{LAPLACE}],"purpose":"p","ttl_seconds":60}}'.encode()
    same(AskGrant, body[:place] + more + body[place:])


@pytest.mark.parametrize(
    "body",
    [
        f'{{"dataset":"d","dataset":"e","mechanisms":[{LAPLACE}]}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"mechanisms":[{LAPLACE}]}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"purpose" :"a","purpose":"b"}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"purpose":"a","purpose":null}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"subjects":null,"subjects":{{"a":["x"]}}}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"ttl_seconds":60,"ttl_seconds":61}}',
        '{"dataset":"d","mechanisms":[{"kind":"laplace","scale":"1","scale":"9","sensitivity":"1"}]}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"ttl_seconds":060}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"ttl_seconds":60.0}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"purpose":"a\\u0000b"}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"purpose":"\\ud800"}}',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}]}} x',
        f'{{"dataset":"d","mechanisms":[{LAPLACE}],"subjects":{{"a":["x"],"a":["y"]}}}}',
        f'{{"d\\u0061taset":"d","dataset":"e","mechanisms":[{LAPLACE}]}}',
    ],
)
def test_nothing_is_accepted_that_the_strict_reader_refuses(body: str) -> None:
    """Keys given twice, odd numbers, NULs and halves of pairs are the strict reader's to refuse."""
    assert quick(AskGrant, body.encode()) is None


def test_what_pipelines_send_is_taken() -> None:
    """Plain bodies are read quickly, with a group, texts and several mechanisms or none of them."""
    for extra in (
        "",
        ',"purpose":"nightly run 7"',
        ',"subjects":{"age":{"from":"20","to":"30"},"sex":["m"]}',
        ',"subjects":[{"a":["x"]},{"b":["y"]}],"justification":"because"',
        ',"ttl_seconds":60',
    ):
        for mechanisms in (LAPLACE, f"{LAPLACE},{LAPLACE}"):
            body = f'{{"dataset":"d","mechanisms":[{mechanisms}]{extra}}}'.encode()
            assert same(AskGrant, body)
            assert same(RecordInvocations, body) == ("ttl" not in extra)


def test_a_part_that_was_read_before_is_read_the_same() -> None:
    """The same bytes come out the same a second time, from memory."""
    reader = Quick()
    body = f'{{"dataset":"d","mechanisms":[{LAPLACE}],"subjects":{{"a":["x"]}}}}'.encode()
    first, again = (reader.one(AskGrant, "pipe", body, "key") for _ in range(2))
    assert first.canonical == again.canonical == strict(AskGrant, body).canonical
    assert first.command == again.command


ITEMS = st.one_of(
    BODIES.map(lambda body: body | {"type": "ask_grant"}),
    BODIES.map(lambda body: body | {"type": "record_invocations"}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["commit_grant", "release_grant", "expire_grant", "no", 1])},
        optional={"grant": TEXTS | st.just("g1"), "reason": TEXTS, "more": st.just(1)},
    ),
)


def batched(body: bytes) -> tuple[list[Envelope], list[int]] | None:
    """The quick reader's result for a batch; None if it leaves that to the strict one."""
    try:
        return Quick().batch("pipe", body)
    except Exception:  # noqa: BLE001 whatever it raises means the same
        return None


@given(st.lists(ITEMS, max_size=4))
def test_a_batch_that_is_taken_is_read_as_the_strict_reader_does(items: list[Any]) -> None:
    """Item by item the same command, in the same order, to the byte."""
    body = json.dumps({"items": items}).encode("utf-8", "surrogatepass")
    if (found := batched(body)) is not None:
        items = BatchRequest.model_validate(body_of(body)).commands()
        order = decided_in(items)
        assert found[1] == order
        for asked, place in zip(found[0], order, strict=True):
            expected = Envelope("pipe", items[place])
            assert (asked.command, asked.canonical) == (expected.command, expected.canonical)


@pytest.mark.parametrize(
    ("items", "taken"),
    [
        (f'"items":[{{"type":"ask_grant","dataset":"d","mechanisms":[{LAPLACE}]}}]', True),
        ('"items":[{"type":"commit_grant","grant":"g1"}]', True),
        ('"items":[{"type":"release_grant","grant":"g1","reason":"never ran"}]', True),
        ('"items":[{"type":"release_grant","grant":"g1"}]', False),
        ('"items":[{"type":"commit_grant","grant":"g1","reason":null}]', False),
        ('"items":[{"type":"commit_grant","grant":"g1","grant":"g2"}]', False),
        ('"items":[{"type":"commit_grant","type":"release_grant","grant":"g1"}]', False),
        ('"it\\u0065ms":[],"items":[{"type":"commit_grant","grant":"g1"}]', False),
        ('"items":[{"type":"commit_grant","gr\\u0061nt":"g1","grant":"g2"}]', False),
        ('"items":[]', False),
        ('"items":[],"items":[{"type":"commit_grant","grant":"g1"}]', False),
    ],
)
def test_batches_are_taken_if_they_are_plain(items: str, taken: bool) -> None:
    """Plain items are read quickly; repeated or escaped keys are left to the strict reader."""
    assert (batched(f"{{{items}}}".encode()) is not None) == taken
