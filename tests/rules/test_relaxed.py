"""Larger amounts of a limit for requests in a context, never silently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from support import SECOND, Book, hospital, laplace, proposed, snapshot
from test_allotment import fired, followed
from test_oracle import PRICED, Checked

from accountant import verify_minimal
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Invalid
from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.budget.snapshot import dump, load
from accountant.ledger.events import Event
from accountant.privacy.filters import FILTERS
from accountant.reporting.statement import accounts_json

WHEN = '{when: {purposes: [alarm]}, epsilon: 3, why: "an outbreak"}'
LIMIT = f"  - {{id: all, limit: {{epsilon: 2}}, relaxed: [{WHEN}]}}\n"
PLAIN = "  - {id: all, limit: {epsilon: 2}}\n"
GRANTED, REFUSED = "grant.reserved.v1", "grant.refused.v1"
RELAXED = [["all", "limit-relaxed"]]


def ask(book: Book, epsilon: str, purpose: str | None = None, **more: Any) -> Event:
    """The answer to a request."""
    about = {"dataset": "d", "mechanisms": [laplace(epsilon)], "purpose": purpose}
    return book.do("ask_grant", **(about | more))


def test_requests_in_a_context_may_use_more() -> None:
    """They are compared with the larger amount on the same sums, all others with the usual one."""
    book = hospital(LIMIT)
    assert ask(book, "1.5").type == GRANTED
    assert ask(book, "0.6").type == REFUSED
    assert ask(book, "1.6", "alarm").type == REFUSED
    assert ask(book, "1.5", "alarm").type == GRANTED
    assert ask(book, "0.000000001").type == REFUSED


def test_what_fits_only_by_its_context_is_flagged() -> None:
    """What fits the usual amount is not; the decision says what was relaxed, for whom and why."""
    book = hospital(LIMIT)
    assert fired(ask(book, "2", "alarm")) == []
    event = ask(book, "0.5", "alarm")
    assert (event.type, fired(event)) == (GRANTED, RELAXED)
    [found] = [one for one in book.decision(event)["rules"] if one["rule"] == "all"]
    assert (found["action"], found["fired"], found["code"]) == ("flag", True, "limit-relaxed")
    assert found["text"] == (
        "epsilon 2 used + 0.5 asked = 2.5 is within the limit 3 of requests for the purpose "
        "“alarm”: an outbreak (dataset d); it fits only so: the usual limit is 2"
    )
    assert found["relaxed"] == [{"epsilon": "3", "delta": "0", "why": "an outbreak"}]


def test_a_refusal_in_a_context_names_the_larger_amount() -> None:
    """The capacity that its event keeps is that which it was compared with."""
    book = hospital(LIMIT)
    refused = ask(book, "3.5", "alarm")
    assert refused.body["rules"]["all"]["capacity"] == ["3000000000", "0"]
    [found] = [one for one in book.decision(refused)["rules"] if one["rule"] == "all"]
    assert "is more than the limit 3 of requests for the purpose “alarm”" in found["text"]


def test_a_record_in_a_context_is_no_overrun_within_it() -> None:
    """What has run and is within the larger amount is flagged as relaxed, beyond it as overrun."""
    book = hospital(LIMIT)
    about = {"dataset": "d", "purpose": "alarm"}
    within = book.do("record_invocations", mechanisms=[laplace("3")], **about)
    assert (fired(within), "overrun" in within.body) == (RELAXED, False)
    beyond = book.do("record_invocations", mechanisms=[laplace("0.1")], **about)
    assert beyond.body["overrun"] is True


def test_of_several_contexts_the_largest_amount_counts() -> None:
    """Epsilon and delta each by itself."""
    more = '{when: {clients: [pi*]}, epsilon: 4, why: "their own data"}'
    book = hospital(LIMIT.replace(WHEN, f"{WHEN}, {more}"))
    assert ask(book, "3.5", "alarm").type == GRANTED
    assert ask(book, "0.5", by="other").type == REFUSED
    assert ask(book, "0.5").type == GRANTED


def test_a_client_sees_no_names_of_others() -> None:
    """Neither in the policy nor in the text of a decision."""
    both = '{when: {clients: [pipe, other]}, epsilon: 4, why: "their own data"}'
    book = hospital(LIMIT.replace(WHEN, both))
    assert book.state.adopted is not None
    policy = book.state.adopted.policy
    assert "other" not in str(policy.seen_by("pipe").to_json())
    assert "own data" not in str(policy.seen_by("third").to_json())
    assert "other" not in str(book.decision(ask(book, "3")))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (LIMIT.replace("epsilon: 3", "epsilon: 1"), "has to be larger than the usual one"),
        (LIMIT.replace("epsilon: 3", "epsilon: 2"), "has to be larger than the usual one"),
        (LIMIT.replace("epsilon: 3, ", ""), "has to be larger than the usual one"),
        (LIMIT.replace("{purposes: [alarm]}", "{}"), "for which purposes, or for which clients"),
        (LIMIT.replace(', why: "an outbreak"', ""), "why"),
        (LIMIT.replace("relaxed", "unlock: {over: 30d}, relaxed"), "one amount, of which a share"),
        (LIMIT + "  - {id: part, part_of: all, limit: {epsilon: 1}}\n", "states relaxed"),
    ],
)
def test_what_cannot_be_relaxed_is_refused_in_words(rule: str, why: str) -> None:
    """An amount that is no larger, for everyone, without a reason, or of what unlocks."""
    with pytest.raises(Invalid, match=why):
        parse_policy(f"policy: p\nrules:\n{rule}")


@pytest.mark.parametrize(
    "rule",
    [
        LIMIT,
        LIMIT.replace("epsilon: 3", "epsilon: 3.1"),
        LIMIT.replace("alarm", "alarm, drill"),
        LIMIT.replace("epsilon: 3", "epsilon: 3, delta: 1e-9"),
    ],
)
def test_to_relax_takes_two_people(rule: str) -> None:
    """A context that begins, grows or may use more loosens the limit; so does a larger delta."""
    book = hospital(PLAIN if rule == LIMIT else LIMIT)
    proposed(book.policy(rule), "all is raised or changed")


@pytest.mark.parametrize("rule", [PLAIN, LIMIT.replace("epsilon: 3", "epsilon: 2.5")])
def test_to_relax_less_takes_one(rule: str) -> None:
    """And a new epoch carries on what was used."""
    book = hospital(LIMIT)
    ask(book, "2.2", "alarm")
    [adopted] = book.policy(rule)
    assert adopted.body["epochs"]["all"]["start"] == "carried"
    assert ask(book, "0.1").type == REFUSED
    assert ask(book, "0.3", "alarm").type == (GRANTED if rule != PLAIN else REFUSED)


def test_the_promise_is_the_largest_amount() -> None:
    """Between the usual and the largest amount nothing is left for others, and nothing is void."""
    book = hospital(LIMIT)
    grant = grant_in(ask(book, "2.5", "alarm"))
    book.do("commit_grant", grant=grant)
    [line] = accounts_json(book.state)["accounts"]
    assert (line["total"]["remaining"], line["total"]["void"]) == ("0", False)
    book.do("record_invocations", dataset="d", mechanisms=[laplace("0.6")])
    [line] = accounts_json(book.state)["accounts"]
    assert line["total"]["void"] is True


def test_who_waits_in_a_context_is_admitted_by_it() -> None:
    """As soon as its larger amount has room, before one that came earlier and has none."""
    book = hospital(LIMIT)
    first = grant_in(ask(book, "2"))
    second = grant_in(ask(book, "1", "alarm"))
    ask(book, "1", wait=3_600)
    waits = ask(book, "0.5", "alarm", wait=3_600)
    assert waits.type == "grant.waiting.v1"
    book.do("release_grant", grant=second, reason="not run")
    assert [grant.by for grant in book.state.waiting.in_order()] == ["pipe"]
    assert first in book.state.open
    admitted = Event.from_bytes(book.stored[-1])
    assert (admitted.type, fired(admitted)) == ("grant.admitted.v1", RELAXED)
    never = ask(book, "3.5", "alarm", wait=3_600)
    assert (never.type, never.body["never"]) == (REFUSED, ["all"])
    assert not book.replayed().findings


def test_a_window_is_relaxed_until_it_passes() -> None:
    """Others are refused until what was used in the context has left it."""
    book = hospital(PLAIN + LIMIT.replace("id: all", "id: hour, window: 1h").replace("2", "1"))
    assert ask(book, "2", "alarm").type == GRANTED
    book.do("commit_grant", grant=grant_in(Event.from_bytes(book.stored[-1])))
    assert ask(book, "0.1").type == REFUSED


# -- laws ----------------------------------------------------------------------------------------

ALARM = '{when: {purposes: [alarm]}, epsilon: 1.7, why: "x"}'
POLICIES = [
    f"""
  - {{id: all, limit: {{epsilon: 1, delta: 1e-5}}, gate: GATE, relaxed: [{ALARM}]}}
  - {{id: sum, across: datasets, limit: {{epsilon: 1.2, delta: 1e-9}}, gate: basic, relaxed: [
     {{when: {{clients: [t*]}}, delta: 1e-8, why: y}}, {ALARM.replace("1.7", "3")}]}}
  - {{id: girls, subjects: {{sex: f}}, limit: {{epsilon: 0.5}}, relaxed: [
     {{when: {{clients: [two], purposes: [alarm, study]}}, epsilon: 0.8, delta: 1e-8, why: y}}]}}
  - {{id: each, per: purpose, limit: {{epsilon: 2}}, relaxed: [{ALARM.replace("1.7", "2.2")}],
     action: flag}}
  - {{id: week, window: 2h, limit: {{epsilon: 0.6}}, relaxed: [{ALARM}]}}
  - {{id: near, of: all, at: 50%}}
""",
    f"""
  - {{id: all, limit: {{epsilon: 1.1, delta: 1e-5}}, gate: GATE, relaxed: [
     {{when: {{purposes: [alarm]}}, epsilon: 2, delta: 2e-5, why: z}}]}}
  - {{id: sum, across: datasets, limit: {{epsilon: 2.5, delta: 1e-9}}, gate: basic}}
  - {{id: girls, subjects: {{sex: f}}, limit: {{epsilon: 0.5}}, relaxed: [{ALARM}]}}
""",
]
groups = st.sampled_from([None, None, {"sex": ["f"]}, {"age": ["22"]}])
happening = st.one_of(
    st.tuples(
        st.just("ask"),
        st.booleans(),
        st.sampled_from(["one", "two"]),
        st.sampled_from(["d", "e", ["d", "e"]]),
        st.integers(0, 5),
        groups,
        st.sampled_from([None, "study", "alarm", "alarm"]),
    ),
    st.tuples(st.just("settle"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(60, 7_000)),
    st.tuples(st.just("policy"), st.integers(0, 1)),
)


@settings(max_examples=examples(80))
@given(st.sampled_from(sorted(FILTERS)), st.lists(happening, max_size=40))
def test_contexts_are_the_oracles(gate: str, todo: list[Any]) -> None:
    """Every decision and every account is what plain Python comes to; a snapshot keeps all of it,
    and the second verifier and the tables add up the same. What was granted never is beyond the
    largest amount.
    """
    book = Checked()
    book.register({"age": ["17", "22"], "sex": ["f", "m"]})
    for name in "de":
        book.dataset(name)
    book.policy(POLICIES[0].replace("GATE", gate), "officer")
    recorded = False
    for kind, *of in todo:
        opened = [grant for grant in book.state.open.values() if not grant.due(book.now)]
        if kind == "ask":
            grants, by, datasets, priced, subjects, purpose = of
            asked = {"mechanisms": [PRICED[priced]], "subjects": subjects, "purpose": purpose}
            asked |= {"dataset": datasets} | ({"ttl_seconds": 5_000} if grants else {})
            recorded |= not grants
            book.do("ask_grant" if grants else "record_invocations", by, **asked)
        elif kind == "settle" and opened:
            more = {"reason": "x"} if of[0] else {}
            what = "release_grant" if of[0] else "commit_grant"
            book.do(what, opened[0].by, grant=opened[0].id, **more)
        elif kind == "wait":
            book.now += of[0] * SECOND
            for grant in [one for one in book.state.open.values() if one.due(book.now)]:
                book.do("expire_grant", SYSTEM, grant=grant.id)
        elif kind == "policy":
            book.policy(POLICIES[of[0]].replace("GATE", gate), "officer", closes=True)
            recorded |= of[0] == 1  # an amount that was lowered may be passed
        if not recorded:
            lines = accounts_json(book.state)["accounts"]
            assert not any(line["total"]["over"] for line in lines if line["action"] == "block")
    book.compare_accounts()
    assert not book.replayed().findings
    assert snapshot(load(book.name, b"".join(dump(book.state)))) == snapshot(book.state)
    followed(book)


def audited(book: Book, change: Any) -> list[Any]:
    """What the second verifier finds where the last event was changed."""
    audit = verify_minimal.Audit()
    for number, entry in enumerate(book.stored):
        document = json.loads(entry)
        if number == len(book.stored) - 1:
            change(document)
        audit.now, audit.time = Event.from_bytes(entry).time, document["time"]
        audit.attempt(audit.size, audit.fold, document, document["type"], document["command"])
        audit.size += 1
    return audit.findings


@pytest.mark.parametrize(
    ("epsilon", "change"),
    [
        ("2.5", lambda event: event["command"].pop("purpose")),
        ("2.5", lambda event: event["command"].update(purpose="another")),
        ("2.5", lambda event: event.pop("fired")),
        ("2.5", lambda event: event.update(fired=[["all", "budget-exceeded"]])),
        ("1.5", lambda event: event.update(fired=RELAXED)),
    ],
)
def test_the_second_verifier_finds_a_context_that_is_none(epsilon: str, change: Any) -> None:
    """What was let in by a context was in it, needed it, and says so."""
    book = hospital(LIMIT)
    assert ask(book, epsilon, "alarm").type == GRANTED
    assert audited(book, lambda event: None) == []
    assert len(audited(book, change)) == 1
