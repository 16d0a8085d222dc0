"""Log lines: of which trace a request is, and what was decided; no secrets, and no free texts."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support import World, ask, laplace, logged

from accountant.door.access_log import AccessLog

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SOUND = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]")
RULES = """
  - {id: a, limit: {epsilon: 1}}
  - {id: nearly, of: a, at: 20%, action: flag}
"""
SECRET = "a reason that nobody else may read"


def lines(world: World, *asked: Any, **more: Any) -> list[Any]:
    """The lines of requests that a POST leads to."""
    with logged() as found:
        world.post(*asked, **more)
    return [line for line in found if line["event"] == "request"]


def test_a_trace_goes_on(world: Callable[..., World]) -> None:
    """The traceparent of a request is echoed, and stands in every line about it."""
    made = world().hospital(RULES)
    for path in ("/grants", "/nowhere"):
        with logged() as found:
            answer = made.post(path, ask(laplace("0.1")), headers={"traceparent": TRACE})
        assert answer.headers["traceparent"] == TRACE
        assert [line["traceparent"] for line in found] == [TRACE]


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "",
        "00",
        TRACE.upper(),
        TRACE + "-00",
        f"ff{TRACE[2:]}",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"{TRACE}, {TRACE}",
        f"01{TRACE[2:]}x",
    ],
)
def test_a_trace_begins(world: Callable[..., World], sent: str | None) -> None:
    """A request without a sound traceparent has one of its own, which no other has."""
    made = world().hospital()
    headers = {} if sent is None else {"traceparent": sent}
    found = [made.get("/accounts", headers=headers).headers["traceparent"] for _ in range(3)]
    assert all(SOUND.fullmatch(one) for one in found)
    assert len({one.split("-")[1] for one in found}) == 3
    assert TRACE not in found


def test_a_trace_of_a_later_version_goes_on(world: Callable[..., World]) -> None:
    """What a later version adds is left out: the beginning says which trace it is."""
    made = world().hospital()
    for sent in (f"01{TRACE[2:]}", f"cc{TRACE[2:]}-what-is-not-known"):
        answer = made.get("/accounts", headers={"traceparent": sent})
        assert answer.headers["traceparent"] == TRACE


def test_decisions_are_logged(world: Callable[..., World]) -> None:
    """The line of a request that was decided says outcome, rule and epsilon, by each way in."""
    made = world().hospital(RULES)
    item = {"items": [{"type": "ask_grant"} | ask(laplace("0.1"))]}
    flagged = {"outcome": "flag", "epsilon": "0.1", "rule": "nearly"}
    told: list[tuple[dict[str, Any], str, Any]] = [
        ({"outcome": "allow", "epsilon": "0.1"}, "/grants", ask(laplace("0.1"))),
        (flagged | {"epsilon": "0.2"}, "/grants", ask(laplace("0.2"))),
        ({"outcome": "block", "epsilon": "0.8", "rule": "a"}, "/grants", ask(laplace("0.8"))),
        ({"outcome": "wait", "epsilon": "0.9", "rule": "a"}, "/grants",
         ask(laplace("0.9"), wait=60)),
        (flagged, "/invocations", ask(laplace("0.1"))),
        (flagged | {"decisions": 1}, "/batch", item),
    ]  # fmt: skip
    for number, (expected, path, body) in enumerate(told):
        [line] = lines(made, path, body, key=f"k{number}")
        names = ("outcome", "epsilon", "rule", "decisions", "repeated")
        assert {name: line[name] for name in names if name in line} == expected, path
        assert line["client"] == "pipeline"
    [again] = lines(made, "/grants", ask(laplace("0.1")), key="k0")
    assert (again["outcome"], again["repeated"]) == ("allow", True)
    [plain] = lines(made, "/grants/g4/release", {"reason": SECRET})
    assert (plain["status"], "outcome" in plain) == (200, False)


def test_lines_hold_no_secret(world: Callable[..., World]) -> None:
    """Neither keys nor free texts are in any line, whatever becomes of a request."""
    made = world().hospital(RULES)
    with logged() as found:
        for epsilon in ("0.1", "0.8", "2"):
            body = ask(laplace(epsilon), purpose=SECRET, justification=SECRET)
            made.post("/grants", body)
            made.post("/grants/g4/release", {"reason": SECRET})
    text = json.dumps(found, default=str)
    assert len(found) == 6
    assert SECRET not in text
    assert not any(secret in text for secret in made.secrets.values())


def test_a_line_names_the_population() -> None:
    """A line of a decision is JSON with the population, spelled as everywhere."""
    file = io.BytesIO()

    async def write() -> None:
        log, facts = AccessLog(file), {"outcome": "allow", "epsilon": "0.1"}
        log.note("POST", "/v1/populations/fair/grants", 201, ("r", TRACE), "pipe", 0.001, facts)
        log.note("GET", "/readyz", 200, ("s", TRACE), None, 0.0)
        log.flush()

    asyncio.run(write())
    first, second = map(json.loads, file.getvalue().splitlines())
    assert {name: first[name] for name in ("population", "client", "outcome", "epsilon")} == {
        "population": "fair", "client": "pipe", "outcome": "allow", "epsilon": "0.1",
    }  # fmt: skip
    assert (first["traceparent"], first["request_id"], first["milliseconds"]) == (TRACE, "r", 1.0)
    assert "population" not in second
