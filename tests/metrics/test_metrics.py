"""What a monitor reads is what the ledger says, on the safe side, and no event is read for it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from math import inf, nextafter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, event
from support import START, Clock, World, ask, laplace

from accountant.ledger.events import Entry
from accountant.privacy.units import Currency, show
from accountant.reporting.metrics import METRICS, down, up
from accountant.runtime.measures import BOUNDS, Latencies, Tally
from accountant.store.ledgers import sqlite_path

RULES = """
  - {id: a, limit: {epsilon: 1}}
  - {id: each, per: client, limit: {epsilon: "0.5"}}
  - {id: nearly, of: a, at: 20%, action: flag}
  - {id: why, require: [purpose]}
"""
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(world: World, who: str = "auditor", query: str = "") -> Samples:
    """All samples of a reading, by name and labels that are not empty."""
    answer = world.http.get(f"/metrics{query}", headers=world.auth(who))
    assert answer.status_code == 200, answer.text
    return {
        (one.name, frozenset((k, v) for k, v in one.labels.items() if v)): one.value
        for family in text_string_to_metric_families(answer.text)
        for one in family.samples
    }


def at(found: Samples, name: str, **labels: str) -> float | None:
    """One sample; None if it is not there."""
    return found.get((f"accountant_{name}", frozenset(labels.items())))


def test_the_numbers_are_those_of_the_ledger(world: Callable[..., World]) -> None:
    """Amounts are those of the accounts, and everything that was decided is counted once."""
    made = world().hospital(RULES)
    first = made.post("/grants", ask(laplace("0.1"), purpose="p")).json()["id"]
    assert made.post(f"/grants/{first}/commit", {}).status_code == 200
    for epsilon in ("0.2", "0.1", "0.3"):
        made.post("/grants", ask(laplace(epsilon), purpose="p"))
    made.post("/grants", ask(laplace("0.1")))
    made.post("/batch", {"items": [{"command": "ask_grant"} | ask(laplace("0.1"))]})
    made.post("/invocations", ask(laplace("0.1"), purpose='"fired":[["a","b"]]'))
    made.post("/grants", ask(laplace("0.4"), purpose="p", wait=3600))
    assert made.put("/policy", "policy: p\nrules:\n  - {id: a, limit: {epsilon: 2}}\n").is_success
    found = scrape(made)

    assert at(found, "limit_epsilon", population="fair", rule="a", dataset="d") == 1
    for name, value in (("spent", 0.2), ("reserved", 0.3), ("remaining", 0.5)):
        read = at(found, f"limit_{name}_epsilon", population="fair", rule="a", dataset="d")
        assert read == pytest.approx(value, abs=1e-9), name
    assert at(found, "limit_void", population="fair", rule="a", dataset="d") == 0
    outcomes = {
        one: at(found, "decisions_total", population="fair", outcome=one)
        for one in ("allow", "flag", "block", "wait")
    }
    kinds = [json.loads(body)["type"] for body in made.stored()]
    assert outcomes["wait"] == kinds.count("grant.waiting.v1") == 1
    assert outcomes["block"] == kinds.count("grant.refused.v1") + kinds.count("batch.refused.v1")
    through = kinds.count("grant.reserved.v1") + kinds.count("invocation.recorded.v1")
    flagged = sum(
        "fired" in one and one["type"] in ("grant.reserved.v1", "invocation.recorded.v1")
        for one in map(json.loads, made.stored())
    )
    assert (outcomes["allow"], outcomes["flag"]) == (through - flagged, flagged)
    fired = {"population": "fair", "rule": "why", "code": "missing-field", "outcome": "block"}
    blocked = [json.loads(b).get("fired") for b in made.stored() if b'"why"' in b]
    code = next(code for pairs in blocked if pairs for rule, code in pairs if rule == "why")
    times = sum(["why", code] in (pairs or []) for pairs in blocked)
    assert at(found, "rule_fired_total", **(fired | {"code": code})) == times >= 1
    for kind in set(kinds):
        assert at(found, "events_total", population="fair", type=kind) == kinds.count(kind)
    assert at(found, "ledger_events", population="fair") == len(kinds)
    assert at(found, "grants_open", population="fair") == 2
    assert at(found, "requests_waiting", population="fair") == 1
    assert at(found, "proposals_waiting", population="fair") == 1
    assert at(found, "proposals_waiting", population="_service") == 0
    assert at(found, "queue_commands", population="fair") == 0
    assert at(found, "clock_in_doubt") == 0


def test_open_grants_are_copied_only_where_cells_were_charged_apart(
    world: Callable[..., World],
) -> None:
    """As long as everyone is charged the accounts say what grants hold; the numbers are those of
    the accounts before and after.
    """
    made = world().hospital(RULES, {"sex": ["f", "m"]})
    for subjects, copied in (({}, 0), ({}, 0), ({"subjects": {"sex": ["f"]}}, 3)):
        made.post("/grants", ask(laplace("0.1"), purpose="p", **subjects))
        state, counts = made.service.sums("fair")
        assert len(state.open) == copied
        assert counts.open == len(made.service.state("fair").open)
        found, rows = scrape(made), made.get("/accounts").json()["accounts"]
        [total] = [one["total"] for one in rows if (one["rule"], one["dataset"]) == ("a", "d")]
        for name in ("spent", "reserved", "remaining"):
            read = at(found, f"limit_{name}_epsilon", population="fair", rule="a", dataset="d")
            assert read == pytest.approx(float(total[name]), abs=1e-12), name
    assert total["reserved"] == "0.3"


def test_parts_are_shown_where_they_are_asked_for(world: Callable[..., World]) -> None:
    """Accounts that only divide a limit, such as a client's, are an option of the scrape."""
    made = world().hospital(RULES)
    made.post("/grants", ask(laplace("0.25"), purpose="p"))
    part = {"population": "fair", "rule": "each", "dataset": "d", "client": "pipeline"}
    assert at(scrape(made), "limit_remaining_epsilon", **part) is None
    assert at(scrape(made, query="?parts=yes"), "limit_remaining_epsilon", **part) == 0.25
    wrong = made.http.get("/metrics?part=yes", headers=made.auth("auditor"))
    assert (wrong.status_code, "unknown-parameter" in wrong.text) == (422, True)


@given(st.integers(min_value=0, max_value=2**62), st.sampled_from(["epsilon", "delta"]))
def test_floats_are_on_the_safe_side(units: int, currency: str) -> None:
    """A loss is never read as less, what is left never as more, and no float is nearer."""
    amount = show(units, Currency(currency))
    assert Fraction(down(amount)) <= Fraction(amount) <= Fraction(up(amount))
    assert up(amount) in (down(amount), nextafter(down(amount), inf))


def test_what_has_no_bound_is_read_as_infinite() -> None:
    """An infinite loss is +Inf; a limit beyond all floats is read as the largest one."""
    assert up("infinite") == inf
    assert down("1" + "0" * 400) == nextafter(inf, 0)
    assert up("1" + "0" * 400) == inf


def test_a_void_guarantee_shows(world: Callable[..., World]) -> None:
    """What ran without a grant beyond the limit makes it void, and nothing is left."""
    made = world().hospital()
    made.post("/invocations", ask(laplace("1.5")))
    found = scrape(made)
    where = {"population": "fair", "rule": "a", "dataset": "d"}
    assert at(found, "limit_void", **where) == 1
    assert at(found, "limit_remaining_epsilon", **where) == 0
    assert at(found, "limit_spent_epsilon", **where) == 1.5


@pytest.mark.parametrize(
    ("who", "status"), [("admin", 200), ("officer", 200), ("auditor", 200), ("pipeline", 403)]
)
def test_who_may_read(world: Callable[..., World], who: str, status: int) -> None:
    """Metrics show everybody's use: a pipeline's key is refused, and so is none."""
    made = world().hospital()
    assert made.http.get("/metrics", headers=made.auth(who)).status_code == status
    assert made.http.get("/metrics").status_code == 401


def test_a_key_for_some_populations_may_not_read(world: Callable[..., World]) -> None:
    """A scrape is about all populations, so a key that does not reach all of them is refused."""
    made = world().hospital()
    create = made.service.credentials.create
    made.secrets["some"] = create("some", "auditor", "test", populations=["fair"])
    answer = made.http.get("/metrics", headers=made.auth("some"))
    assert (answer.status_code, "outside-scope" in answer.text) == (403, True)


def test_heads_are_shown_with_their_age(world: Callable[..., World]) -> None:
    """Sizes and times of the heads last signed and published, from the first one on."""
    made = world().hospital()
    where = {"population": "fair", "kind": "published"}
    assert at(scrape(made), "checkpoint_events", **where) is None
    made.publisher.publish("fair")
    size = made.head().size
    made.post("/grants", ask(laplace("0.1")))
    found = scrape(made)
    assert at(found, "checkpoint_events", **where) == size
    assert at(found, "ledger_events", population="fair") == size + 1
    stamp = at(found, "checkpoint_timestamp_seconds", **where)
    assert stamp is not None
    assert stamp > START / 1e6 / 2


def test_a_clock_in_doubt_shows(world: Callable[..., World]) -> None:
    """A clock that jumped is shown as long as it is in doubt."""
    clock = Clock()
    made = world(clock).hospital()
    clock.jump(3_600)
    assert at(scrape(made), "clock_in_doubt") == 1
    clock.jump(-3_600)
    assert at(scrape(made), "clock_in_doubt") == 0


def test_a_ledger_that_went_back_shows_and_the_others_are_read(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """A database that does not continue what was signed is no reason to show nothing."""
    made = world().hospital()
    other = {"privacy_unit": "p", "neighbouring": "replace_one", "membership": "public"}
    path = "/v1/populations/other"
    assert made.http.put(path, headers=made.auth("admin"), json=other).status_code == 200
    older = tmp_path / "older.db"
    with (
        closing(sqlite3.connect(sqlite_path(made.url))) as now,
        closing(sqlite3.connect(older)) as copy,
    ):
        now.backup(copy)
    made.post("/grants", ask(laplace("0.1")))
    made.publisher.publish("fair")
    made = world(url=f"sqlite:///{older}", home=made.settings.home)
    found = scrape(made)
    assert at(found, "ledger_readable", population="fair") == 0
    assert at(found, "ledger_readable", population="other") == 1
    assert at(found, "ledger_events", population="other") == 1
    assert at(found, "ledger_events", population="fair") is None


@contextmanager
def statements() -> Iterator[list[str]]:
    """All statements that are sent to the database meanwhile."""
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def test_a_reading_reads_no_events(world: Callable[..., World]) -> None:
    """However long a ledger is, a scrape reads where it ends and nothing of what it holds."""
    made = world().hospital()
    made.post("/grants", ask(laplace("0.1")))
    made.publisher.publish("fair")
    scrape(made)
    with statements() as seen:
        scrape(made)
    assert seen
    assert not [one for one in seen if " event" in one or not one.startswith("SELECT")]


def test_answers_are_counted_by_how_long_they_took() -> None:
    """Each answer is in the first class whose end it does not exceed."""
    latencies = Latencies()
    for took in (0.0005, 0.00051, 9.0, 11.0):
        latencies.observe("POST", "/v1/populations/fair/grants", 201, took)
    latencies.observe("GET", "/v1/populations/fair/grants", 200, 0.1)
    latencies.observe("GET", "/console/fair", 200, 0.1)
    found = latencies.durations()
    assert found.keys() == {("grants", 201), ("other", 200), ("console", 200)}
    counts = dict(zip(BOUNDS, found["grants", 201].counts, strict=True))
    assert {bound for bound, count in counts.items() if count} == {0.0005, 0.001, 10.0, inf}
    assert found["grants", 201].total == pytest.approx(20.00101)


def test_many_ways_to_fire_are_kept_as_few_counts() -> None:
    """Combinations of rules are not kept one by one: memory grows with rules, not with those."""
    tally = Tally()
    for i in range(5_000):
        fired = [["r", "c"], [f"r{i % 7}", "c"], [str(i), "c"]]
        tally.add("l", [Entry(i, "grant.refused.v1", 0, b"")], [fired])
        assert len(tally._raw) <= 1_025
    found = {one.rule: count for one, count in tally.decisions().items()}
    assert (found[""], found["r"], found["r3"]) == (5_000, 5_000, 714)
    assert tally.events() == {("l", "grant.refused.v1"): 5_000}


def test_every_sample_is_described(world: Callable[..., World]) -> None:
    """A reading has the metrics of the catalogue, with their kinds, meanings and labels."""
    made = world().hospital(RULES)
    made.post("/grants", ask(laplace("0.3"), purpose="p"))
    made.publisher.publish("fair")
    text = made.http.get("/metrics", headers=made.auth("admin")).text
    seen = set()
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("accountant_"):
            assert family.name.startswith("process_")
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        kind, meaning, labels = METRICS[name]
        assert (family.type, family.documentation) == (kind, meaning)
        for one in family.samples:
            assert one.labels.keys() - {"le"} == set(labels), name
        seen.add(name)
    assert seen == METRICS.keys()
