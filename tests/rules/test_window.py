"""A window: spending stops counting when the window has passed it, and never a moment earlier.

The naive model reads the events and keeps a list of (stamp, cells, charge), which it adds up again
whenever somebody asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support import (
    NON_PRIVATE,
    SECOND,
    START,
    Book,
    Clock,
    World,
    cells_of,
    declared,
    gaussian,
    hospital,
    laplace,
    last_replay,
    make,
    proposed,
    sparse_vector,
)

from accountant.budget.accounts.spans import Window
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.apply import drop_journal, fold, follow, keep_journal, rollback
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem
from accountant.budget.evaluate import evaluate, how_many
from accountant.budget.request import prepare
from accountant.budget.rules.window import WindowRule
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.ledger.events import Event, microseconds
from accountant.privacy.units import Charge
from accountant.publishing.fleet.changes import ChargeSums, applied
from accountant.reporting.files import report_of
from accountant.reporting.page import to_html
from accountant.reporting.statement import accounts_json

HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
RULES = "  - {id: w, window: 30d, limit: {epsilon: 1}}\n"


def stamp(text: str) -> int:
    """Microseconds since 1970 of a moment in UTC."""
    return microseconds(text)


def counts(book: Book, now: int | None = None, rule: str = "w") -> list[int]:
    """Units of epsilon that count at ``now`` in each cell, as a reader sees them."""
    state = book.state.frozen(book.now if now is None else now)
    return [cell[0] for cell in cells_of(state.seen(book.key(rule)).used)]


def spend(book: Book, epsilon: str, **more: Any) -> Event:
    """Asks and commits at once."""
    granted = book.grant(laplace(epsilon), **more)
    return book.do("commit_grant", grant=f"g{granted.sequence}")


def allowed(event: Event) -> bool:
    """Whether a request was granted."""
    return event.type == "grant.reserved.v1"


# -- spans -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "spent", "ends"),
    [
        ("12h", "2026-03-01T20:00:00.000001Z", "2026-03-02T08:00:00.000001Z"),
        ("30d", "2026-12-31T00:00:00.000000Z", "2027-01-30T00:00:00.000000Z"),
        ("1d", "2028-02-28T12:00:00.000000Z", "2028-02-29T12:00:00.000000Z"),
        ("month", "2026-01-31T23:59:59.999999Z", "2026-02-01T00:00:00.000000Z"),
        ("month", "2026-03-01T00:00:00.000000Z", "2026-04-01T00:00:00.000000Z"),
        ("month", "2026-12-05T10:00:00.000000Z", "2027-01-01T00:00:00.000000Z"),
        ("month", "2026-02-10T00:00:00.000000Z", "2026-03-01T00:00:00.000000Z"),
        ("month", "2028-02-28T23:00:00.000000Z", "2028-03-01T00:00:00.000000Z"),
        ("month", "2028-02-29T23:59:59.999999Z", "2028-03-01T00:00:00.000000Z"),
    ],
)
def test_a_span_ends_where_it_says(window: str, spent: str, ends: str) -> None:
    """Hours and days roll on from the spending; a month ends where the calendar's does in UTC."""
    assert Window.read(window).ends(stamp(spent)) == stamp(ends)


@given(st.integers(0, 4_000_000_000 * SECOND))
def test_a_month_ends_at_the_first_midnight_of_the_next(at: int) -> None:
    """Whatever the year and the month."""
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    after = datetime.fromtimestamp(Window.read("month").ends(at) // SECOND, UTC)
    assert (after.day, after.hour, after.minute, after.second) == (1, 0, 0, 0)
    assert (after.year * 12 + after.month) - (moment.year * 12 + moment.month) == 1


@pytest.mark.parametrize(
    "text", ["", "0d", "030d", "30", "30w", "-1d", "1.5d", "30d ", "Month", "٣d", "100000h", "1d1h"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    """A policy with another spelling is not read."""
    with pytest.raises(ValidationError, match="is no window"):
        WindowRule.model_validate({"id": "w", "window": text, "limit": {"epsilon": 1}})


# -- what counts, and for how long -----------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "start", "ends"),
    [
        ("12h", "2026-10-01T09:00:00.000000Z", "2026-10-01T21:00:00.000000Z"),
        ("30d", "2026-10-01T09:00:00.000000Z", "2026-10-31T09:00:00.000000Z"),
        ("month", "2026-10-01T00:00:00.000000Z", "2026-11-01T00:00:00.000000Z"),
        ("month", "2026-12-31T23:59:59.000000Z", "2027-01-01T00:00:00.000000Z"),
        ("month", "2028-02-01T00:00:00.000000Z", "2028-03-01T00:00:00.000000Z"),
    ],
)
def test_it_frees_at_its_stamp_and_not_a_microsecond_before(
    window: str, start: str, ends: str
) -> None:
    """All of the limit is spent: the next request is refused until the stamp, and granted there."""
    book = Book(now=stamp("2026-09-01T00:00:00.000000Z"))
    book.register()
    book.dataset("d")
    book.policy(f"  - {{id: w, window: {window}, limit: {{epsilon: 1}}}}\n")
    book.now = stamp(start)
    spend(book, "1")
    book.now = stamp(ends) - 1
    assert not allowed(book.grant(laplace("0.1")))
    assert counts(book) == [10**9]
    book.now = stamp(ends)
    assert counts(book) == [0]
    assert allowed(book.grant(laplace("1")))
    assert book.replayed().findings == []


def test_a_reservation_counts_for_as_long_as_the_grant_is_open() -> None:
    """However long ago it was asked for; a grant that nobody has expired yet holds it too."""
    book = hospital(RULES)
    book.grant(laplace("0.7"), ttl_seconds=60)
    book.now += 90 * DAY
    assert counts(book) == [700_000_000]
    assert not allowed(book.grant(laplace("0.4")))


@pytest.mark.parametrize("ending", ["commit", "expire", "session", "recover", "record"])
def test_spending_counts_from_the_event_that_spent(ending: str) -> None:
    """A commit, an expiry, the end of a session, a recovery, a record: each begins at its stamp."""
    book = hospital(RULES)
    asked = book.now
    if ending == "session":
        granted = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
    elif ending != "record":
        granted = book.grant(laplace("0.5"), ttl_seconds=86_400 if ending != "expire" else 60)
    book.now = spent = asked + 80_000 * SECOND * (ending != "session") + 100 * SECOND
    if ending == "commit":
        book.do("commit_grant", grant=f"g{granted.sequence}")
    elif ending == "expire":
        book.do("expire_grant", SYSTEM, grant=f"g{granted.sequence}")
    elif ending == "session":
        book.do("close_sparse_vector", grant=f"g{granted.sequence}")
    elif ending == "recover":
        book.do("recover", "officer", reason="put back", lost=[])
    else:
        book.record(laplace("0.5"), ran_at="2026-09-01T00:00:00Z")
    held = counts(book)
    assert held[0] > 0
    assert counts(book, spent + 30 * DAY - 1) == held
    assert counts(book, spent + 30 * DAY) == [0]


def test_a_release_leaves_nothing() -> None:
    """What a released grant held is free at once, and is not freed a second time."""
    book = hospital(RULES, {"age": ["1", "2"]})
    for subjects in (None, {"age": ["1"]}):
        granted = book.grant(laplace("0.9"), subjects=subjects)
        book.now += HOUR // 2
        book.do("release_grant", grant=f"g{granted.sequence}", reason="never run")
    assert counts(book) == [0, 0]
    assert not book.account("w").passing
    assert counts(book, book.now + 90 * DAY) == [0, 0]


def test_a_part_that_was_run_is_all_that_counts() -> None:
    """A commit of less gives the rest back at once; the part passes."""
    book = hospital(RULES)
    granted = book.grant(laplace("0.1", 5))
    book.do("commit_grant", grant=f"g{granted.sequence}", mechanisms=[laplace("0.1", 2)])
    assert counts(book) == [200_000_000]
    assert counts(book, book.now + 30 * DAY) == [0]


def test_groups_pass_by_themselves() -> None:
    """A union, a narrow group and everyone are freed each at its stamp, on its own cells only."""
    book = hospital(RULES, {"age": ["1", "2", "3"], "sex": ["f", "m"]})
    first = book.now
    spend(book, "0.1", subjects=[{"age": ["1"]}, {"sex": ["f"]}])
    book.now += DAY
    spend(book, "0.2", subjects={"age": ["3"], "sex": ["m"]})
    book.now += DAY
    spend(book, "0.3")
    tenth = 100_000_000
    both = [4 * tenth, 4 * tenth, 4 * tenth, 3 * tenth, 4 * tenth, 5 * tenth]
    assert counts(book) == both
    assert counts(book, first + 30 * DAY) == [3 * tenth] * 5 + [5 * tenth]
    assert counts(book, first + 31 * DAY) == [3 * tenth] * 6
    assert counts(book, first + 32 * DAY) == [0] * 6


def test_infinite_charges_pass_too() -> None:
    """A charge without a bound closes the window until it has passed, and not for longer."""
    book = hospital(RULES, {"age": ["1", "2"]})
    book.record(NON_PRIVATE, subjects={"age": ["1"]})
    book.now += 30 * DAY - 1
    assert not allowed(book.grant(laplace("0.1")))
    assert allowed(book.grant(laplace("0.1"), subjects={"age": ["2"]}))
    book.now += 1
    assert allowed(book.grant(laplace("0.1")))


def test_many_spendings_at_one_stamp_pass_together() -> None:
    """A month's worth of one group is one entry, however many spendings it is of."""
    book = hospital("  - {id: w, window: month, limit: {epsilon: 1}}\n", {"age": ["1", "2"]})
    for number in range(40):
        spend(book, "0.01", subjects={"age": ["1"]} if number % 2 else None)
        book.now += HOUR
    [part] = book.account("w").passing
    assert len(part.charges) == 2
    assert counts(book) == [400_000_000, 200_000_000]
    assert counts(book, part.ends) == [0, 0]


def test_a_clients_window_is_its_own() -> None:
    """With ``per: client`` each client's spending passes in an account of its own."""
    book = hospital("  - {id: w, window: 12h, per: client, limit: {epsilon: 1}}\n" + WIDE)
    for client in ("one", "two"):
        assert allowed(book.do("ask_grant", client, dataset="d", mechanisms=[laplace("1")]))
    assert not allowed(book.do("ask_grant", "one", dataset="d", mechanisms=[laplace("0.1")]))


WIDE = "  - {id: wide, limit: {epsilon: 1000}}\n"


# -- new cells -------------------------------------------------------------------------------


def test_what_a_new_cell_inherits_passes() -> None:
    """It counts from the extension, whatever it was that was inherited, and is freed once."""
    book = hospital(RULES, {"age": ["1", "2"]})
    spend(book, "0.2", subjects={"age": ["1"]})
    spend(book, "0.1")
    book.now += 10 * DAY
    extended = book.now
    book.register({"age": ["1", "2", "3"]})
    assert counts(book) == [300_000_000, 100_000_000, 300_000_000]
    assert counts(book, START + 30 * DAY) == [0, 0, 200_000_000]
    assert counts(book, extended + 30 * DAY - 1) == [0, 0, 200_000_000]
    assert counts(book, extended + 30 * DAY) == [0, 0, 0]


def test_a_new_cell_does_not_inherit_what_has_passed() -> None:
    """Nor if nobody has looked at the account since; a snapshot in between changes nothing."""
    book = hospital(RULES + WIDE, {"age": ["1", "2"]})
    book.dataset("e")
    spend(book, "0.9", subjects={"age": ["1"]})
    book.now += 30 * DAY
    spend(book, "0.1", dataset="e")
    again = load(book.name, b"".join(dump(book.state)))
    book.register({"age": ["1", "2", "3"]})
    assert counts(book) == [0, 0, 0]
    apply_all(again, book.stored[again.sequence :])
    assert dump(again) == dump(book.state)


def test_new_cells_of_people_who_are_attested_new_begin_with_what_may_still_run() -> None:
    """What everyone has spent passes on the cells that were there, and only on these. What an open
    grant on all ages holds on the new ones is freed when that has passed.
    """
    book = hospital(RULES, {"age": ["1", "2"], "sex": ["f", "m"]})
    spend(book, "0.1")
    spend(book, "0.2", subjects={"sex": ["f"]})
    granted = book.grant(laplace("0.3"), subjects={"sex": ["f"]}, ttl_seconds=86_400)
    book.register({"age": ["1", "2", "3"], "sex": ["f", "m"]}, attested_new=True)
    tenth = 100_000_000
    assert counts(book) == [6 * tenth, tenth, 6 * tenth, tenth, 3 * tenth, 0]
    book.now += HOUR
    book.do("commit_grant", grant=f"g{granted.sequence}")
    assert counts(book, START + 30 * DAY) == [3 * tenth, 0] * 3
    assert counts(book, book.now + 30 * DAY) == [0] * 6


def test_an_open_grant_that_covers_new_cells_is_freed_there_once() -> None:
    """What it holds there is not inherited as spent: a release gives it back."""
    for ending in ("release", "commit"):
        book = hospital(RULES, {"age": ["1", "2"], "sex": ["f", "m"]})
        granted = book.grant(laplace("0.3"), subjects={"sex": ["f"]}, ttl_seconds=86_400)
        other = book.grant(laplace("0.4"), subjects={"age": ["2"]}, ttl_seconds=86_400)
        book.now += 60 * SECOND
        book.register({"age": ["1", "2", "3"], "sex": ["f", "m"]})
        extended = book.now
        tenth = 100_000_000
        assert counts(book)[4:] == [7 * tenth, 4 * tenth]
        book.now += 60 * SECOND
        name = f"g{granted.sequence}"
        if ending == "release":
            book.do("release_grant", grant=name, reason="never run")
            assert counts(book)[4:] == [4 * tenth, 4 * tenth]
        else:
            book.do("commit_grant", grant=name)
            assert counts(book)[4:] == [7 * tenth, 4 * tenth]
        book.do("release_grant", grant=f"g{other.sequence}", reason="never run")
        left = 3 * tenth * (ending == "commit")
        assert counts(book, extended + 30 * DAY)[4:] == [left, 0]
        assert counts(book, book.now + 30 * DAY) == [0] * 6


# -- carried over, recovered -----------------------------------------------------------------


def carry(book: Book, epsilon: str, rule: str = "w") -> None:
    """Some account has used at least so much."""
    account = {
        "rule": rule,
        "epoch": book.state.last_epoch.get(rule, 0),
        "dataset": "d",
        "client": "",
        "used": {"epsilon": str(int(float(epsilon) * 10**9)), "delta": "0"},
    }
    book.do("carry_over", "officer", accounts=[account])


def test_what_is_carried_over_counts_from_then() -> None:
    """A floor adds what cells have less, and that passes a window after the recovery."""
    book = hospital(RULES, {"age": ["1", "2"]})
    spend(book, "0.5", subjects={"age": ["1"]})
    book.now += 10 * DAY
    lifted = book.now
    carry(book, "0.3")
    assert counts(book) == [500_000_000, 300_000_000]
    assert counts(book, START + 30 * DAY) == [0, 300_000_000]
    book.now = START + 30 * DAY
    assert not allowed(book.grant(laplace("0.8"), subjects={"age": ["2"]}))
    assert allowed(book.grant(laplace("0.8"), subjects={"age": ["1"]}))
    assert counts(book, lifted + 30 * DAY) == [800_000_000, 0]


def test_a_floor_bounds_what_comes_after_it_to_the_unit() -> None:
    """What passes below the floor does not take the floor with it: all of the limit is no more."""
    book = hospital(RULES, {"age": ["1", "2"]})
    spend(book, "0.5", subjects={"age": ["1"]})
    book.now += 10 * DAY
    carry(book, "0.3")
    book.now = START + 30 * DAY
    assert not allowed(book.grant(laplace("0.700000001"), subjects={"age": ["2"]}))
    assert allowed(book.grant(laplace("0.7"), subjects={"age": ["2"]}))
    assert not allowed(book.grant(laplace("0.000000001"), subjects={"age": ["2"]}))


def test_a_new_cell_after_a_floor_holds_what_its_grants_hold() -> None:
    """A cell that inherits from one above the floor is never below what open grants hold there."""
    book = hospital(RULES, {"age": ["1"], "sex": ["f"]})
    spend(book, "0.5", subjects={"age": ["1"]})
    book.now = START + 10 * DAY
    carry(book, "0.3")
    book.now = START + 30 * DAY
    granted = book.grant(laplace("0.4"), subjects={"sex": ["f"]}, ttl_seconds=30 * 86_400)
    book.register({"age": ["1", "2"], "sex": ["f"]})
    assert min(counts(book, START + 45 * DAY)) == 400_000_000
    book.do("release_grant", grant=f"g{granted.sequence}", reason="never run")
    assert counts(book, START + 45 * DAY) == [0, 0]
    assert counts(book, START + 90 * DAY) == [0, 0]


def test_what_grants_hold_in_a_lifted_account_is_spent_and_passes() -> None:
    """Open grants lose their booking there; it counts for a window from the recovery on."""
    book = hospital(RULES)
    granted = book.grant(laplace("0.4"), ttl_seconds=86_400)
    book.now += HOUR
    carry(book, "0.6")
    assert counts(book) == [600_000_000]
    book.do("release_grant", grant=f"g{granted.sequence}", reason="never run")
    assert counts(book) == [600_000_000]
    assert counts(book, book.now + 30 * DAY - 1) == [600_000_000]
    assert counts(book, book.now + 30 * DAY) == [0]


# -- other policies --------------------------------------------------------------------------


def start_of(events: list[Event], rule: str = "w") -> str:
    """How a rule begins under the policy that was adopted."""
    found: str = events[-1].body["epochs"][rule]["start"]
    return found


def window(text: str = "30d", epsilon: str = "1", more: str = "") -> str:
    """One window rule, with a wide limit beside it."""
    return f"  - {{id: w, window: {text}, limit: {{epsilon: {epsilon}}}{more}}}\n" + WIDE


def test_an_unchanged_rule_goes_on() -> None:
    """Another policy with the same window keeps what is in it, and when that ends."""
    book = hospital(window())
    spend(book, "0.6")
    book.now += DAY
    adopted = book.policy(window() + "  - {id: nearly, of: w, at: 80%}\n")
    assert start_of(adopted) == "kept"
    assert counts(book) == [600_000_000]
    assert counts(book, START + 30 * DAY) == [0]


def test_a_raised_limit_carries_what_is_in_the_window() -> None:
    """It goes on from there under two names, open grants included, and it passes as before."""
    book = hospital(window())
    spend(book, "0.6")
    granted = book.grant(laplace("0.2"), ttl_seconds=86_400)
    book.now += HOUR
    proposed(book.policy(window(epsilon="2")), "raised or changed")
    adopted = book.policy(window(epsilon="2"), confirmed_by="officer")
    assert start_of(adopted) == "carried"
    assert counts(book) == [800_000_000]
    book.do("commit_grant", grant=f"g{granted.sequence}")
    assert not allowed(book.grant(laplace("1.3")))
    assert allowed(book.grant(laplace("1.2")))
    assert counts(book, START + 30 * DAY) == [1_400_000_000]
    assert counts(book, book.now + 30 * DAY) == [1_200_000_000]


@pytest.mark.parametrize(
    "rules",
    [
        window("12h"),
        window("month"),
        window(more=", across: datasets"),
        window(more=", datasets: 'd*'"),
        "  - {id: w, window: 30d, limit: {epsilon: 1, delta: 1e-6}, gate: zcdp}\n" + WIDE,
        window(more=", carry: none"),
    ],
    ids=["shorter", "calendar", "across", "datasets", "gate", "reset"],
)
def test_another_window_starts_empty_under_two_names(rules: str) -> None:
    """Once something was used, a window, a gate or a scope that changes forgets it: that takes a
    second person.
    """
    book = hospital(window())
    spend(book, "0.6")
    proposed(book.policy(rules), "forgets what was used")
    adopted = book.policy(rules, confirmed_by="officer")
    assert start_of(adopted) == "empty"
    assert (
        sum(
            cell[0]
            for key, a in book.state.accounts.items()
            if key.rule == "w" and key.epoch == book.state.last_epoch["w"]
            for cell in cells_of(a.used)
        )
        == 0
    )
    assert allowed(book.grant(laplace("1")))


def test_a_window_that_is_added_starts_empty_under_one_name() -> None:
    """What came before it is no part of what it promises, and it takes nothing away."""
    book = hospital(WIDE)
    spend(book, "0.6")
    assert start_of(book.policy(window())) == "empty"
    assert counts(book) == [0]


def test_a_limit_in_place_of_a_window_counts_the_lifetime() -> None:
    """A rule that loses its window starts from what the data have ever used."""
    book = hospital(window())
    for _ in range(3):
        spend(book, "0.9")
        book.now += 30 * DAY
    adopted = book.policy("  - {id: w, limit: {epsilon: 3}}\n" + WIDE, confirmed_by="officer")
    assert start_of(adopted) == "brought"
    assert counts(book) == [2_700_000_000]


def test_a_limit_that_gets_a_window_forgets() -> None:
    """It takes two names: the lifetime's bound is gone."""
    book = hospital("  - {id: w, limit: {epsilon: 1}}\n" + WIDE)
    spend(book, "0.6")
    proposed(book.policy(window()), "forgets what was used")


# -- thresholds, previews, texts -------------------------------------------------------------


def test_a_threshold_of_a_window_goes_out_with_it() -> None:
    """A share of a window is passed while it is used, and not any more when that has passed."""
    book = hospital(RULES + "  - {id: nearly, of: w, at: 50%}\n")
    spend(book, "0.5")
    flagged = book.grant(laplace("0.1"))
    assert flagged.body["fired"] == [["nearly", "threshold-passed"]]
    book.do("release_grant", grant=f"g{flagged.sequence}", reason="never run")
    book.now += 30 * DAY
    assert "fired" not in book.grant(laplace("0.1")).body


def test_a_preview_that_looks_ahead_changes_no_decision() -> None:
    """Whoever looks at a later stamp sees what has passed by then; an event that is stamped before
    is decided by its own stamp.
    """
    book = hospital(RULES, {"age": ["1", "2"]})
    spend(book, "0.6", subjects={"age": ["1"]})
    spend(book, "0.3")
    before = dump(book.state)
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.1")])
    request = prepare(book.state, "pipe", command, book.now + 30 * DAY)
    assert evaluate(book.state, request).outcome == "allow"
    assert how_many(book.state, request) == 10
    assert dump(book.state) == before
    book.now += 30 * DAY - 1
    assert counts(book, book.now + 1) == [0, 0]
    assert not allowed(book.grant(laplace("0.2")))
    assert counts(book) == [900_000_000, 300_000_000]


def test_words_say_what_is_counted() -> None:
    """A decision says over what it is counted, and that it is not the lifetime."""
    book = hospital(RULES)
    spend(book, "0.8")
    [said] = book.decision(book.grant(laplace("0.3")))["rules"]
    assert said["fired"]
    assert "counted over 30 days, not over the lifetime" in said["text"]


@pytest.mark.parametrize("text", ["30d", "1d", "12h", "month"])
def test_the_rules_sentence_promises_no_lifetime(text: str) -> None:
    """What a report says of the rule bounds one window, and nothing longer."""
    rule = WindowRule.model_validate({"id": "w", "window": text, "limit": {"epsilon": 1}})
    said = rule.sentence("a person")
    assert "for what starts inside one such window that is fixed in advance" in said
    assert "for nothing longer" in said
    assert Window.read(text).words in said
    assert "ever" not in said.split()


def test_accounts_show_the_lifetime_beside_it() -> None:
    """The lifetime total goes on where the window has passed; later, without an event in between,
    the account shows what has passed by then.
    """
    book = hospital(RULES)
    for _ in range(3):
        spend(book, "0.9")
        book.now += 30 * DAY
    book.now -= 1
    for passed in (False, True):
        document = accounts_json(book.state.frozen(book.now))
        [line] = document["accounts"]
        assert line["total"]["spent"] == ("0" if passed else "0.9")
        assert line["total"]["remaining"] == ("1" if passed else "0.1")
        assert line["lifetime"]["epsilon"] == "2.7"
        assert document["lifetime"][0]["epsilon"] == "2.7"
        book.now += 1


def test_a_window_is_never_taken_for_the_lifetime() -> None:
    """Where the lifetime's plain sum has no bound, a window's number does not stand in for it."""
    rules = "  - {id: w, window: 30d, limit: {epsilon: 1, delta: 1e-6}, gate: zcdp}\n"
    book = hospital(rules)
    spent = book.grant(gaussian("0.01"))
    book.do("commit_grant", grant=f"g{spent.sequence}")
    [line] = accounts_json(book.state.frozen(book.now))["accounts"]
    assert line["total"]["spent"] != "infinite"
    assert line["lifetime"]["epsilon"] == "infinite"


def test_over_http_it_frees_while_nothing_happens(world: Any) -> None:
    """The accounts, the report and a preview of a quiet ledger show what has passed by now."""
    clock = Clock()
    there: World = world(clock=clock)
    there.hospital(RULES)
    granted = there.post("/grants", {"dataset": "d", "mechanisms": [laplace("0.9")]}).json()
    there.post(f"/grants/{granted['id']}/commit", {})
    asked = {"dataset": "d", "mechanisms": [laplace("0.5")]}
    assert there.post("/preview", asked).json()["decision"]["outcome"] == "block"
    clock.forward(30 * 86_400)
    assert there.post("/preview", asked).json()["decision"]["outcome"] == "allow"
    [line] = there.get("/accounts").json()["accounts"]
    assert (line["total"]["spent"], line["lifetime"]["epsilon"]) == ("0", "0.9")


@pytest.mark.parametrize("window", ["30d", "month"])
def test_a_report_shows_the_lifetime_beside_the_window(window: str, world: Any) -> None:
    """The page says over what a rule counts, and that it bounds nothing longer; the lifetime total
    stands on it whatever has passed.
    """
    clock = Clock()
    there: World = world(clock=clock)
    there.hospital(f"  - {{id: w, window: {window}, limit: {{epsilon: 1}}}}\n")
    granted = there.post("/grants", {"dataset": "d", "mechanisms": [laplace("0.9")]}).json()
    there.post(f"/grants/{granted['id']}/commit", {})
    clock.forward(40 * 86_400)
    page = to_html(report_of(there.service.ledgers, "fair", None))
    words = Window.read(window).words
    assert f"counted over {words}; bounds no longer time" in page
    assert f"Limit of rule “w” over {words}" in page
    assert "for what starts inside one such window that is fixed in advance" in page.lower()
    assert "Spent in the window" in page
    [total] = re.findall(r"<dt>Lifetime total</dt><dd>(.*?) This counts", page)[:1]
    assert "0.9" in total


# -- the naive model -------------------------------------------------------------------------

Cell = tuple[int, ...]
Sum = tuple[int, ...]


def plus(*sums: Sum) -> Sum:
    """Their sum."""
    return tuple(map(sum, zip(*sums, strict=True)))


def minus(left: Sum, right: Sum) -> Sum:
    """Their difference."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


class Naive:
    """The account of window rule ``w`` on dataset ``d``, from the events alone: what was spent,
    when and on which cells, and what is open; added up anew for each look.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        self.window: Window | None = None
        self.axis: tuple[Any, ...] = ()
        self.epoch = 0
        self.spent: list[tuple[int, set[Cell] | None, Sum, bool]] = []
        """With stamps; the last says whether it is on everyone and may still run."""
        self.open: dict[str, tuple[dict[str, Any], set[Cell] | None, Charge]] = {}
        self.held: dict[str, Sum] = {}
        self.true: list[tuple[int, set[Cell] | None, Sum, bool]] = []
        """What is surely inside: the same without what was only inherited or carried over."""

    def cells(self, subjects: Any = None) -> set[Cell]:
        """The cells of a group."""
        found: set[Cell] = set()
        for term in subjects if isinstance(subjects, list) else [subjects or {}]:
            sides = []
            for name, values in self.values.items():
                wanted = term.get(name, values)
                if isinstance(wanted, dict):
                    first, last = values.index(wanted["from"]), values.index(wanted["to"])
                    wanted = values[first : last + 1]
                sides.append([values.index(value) for value in wanted])
            found |= set(product(*sides))
        return found

    def units(self, charge: Charge) -> Sum:
        """In the currencies that the account keeps: finite, then infinite."""
        charge = charge.on(self.axis)
        return *charge.finite, *charge.infinite

    @property
    def nothing(self) -> Sum:
        """No charge."""
        return (0,) * (2 * len(self.axis))

    def narrow(self, cell: Cell, now: int) -> Sum:
        """What counts on a cell beside what everyone has."""
        parts = [s for at, on, s, _ in self.spent if on and cell in on and self.inside(at, now)]
        parts += [s for name, s in self.held.items() if cell in (self.open[name][1] or ())]
        return plus(self.nothing, *parts)

    def wide(self, now: int) -> Sum:
        """What everyone has."""
        parts = [s for at, on, s, _ in self.spent if on is None and self.inside(at, now)]
        parts += [s for name, s in self.held.items() if self.open[name][1] is None]
        return plus(self.nothing, *parts)

    def inside(self, at: int, now: int) -> bool:
        """Whether what was spent at a stamp still counts."""
        assert self.window is not None
        return now < self.window.ends(at)

    def sums(self, now: int) -> list[Sum]:
        """What counts on each cell."""
        wide = self.wide(now)
        return [plus(wide, self.narrow(cell, now)) for cell in sorted(self.cells())]

    def surely(self, now: int) -> list[Sum]:
        """What is surely inside the window on each cell."""
        found = []
        for cell in sorted(self.cells()):
            parts = [
                s
                for at, on, s, _ in self.true
                if (on is None or cell in on) and self.inside(at, now)
            ]
            open_ = [
                s
                for name, s in self.held.items()
                if self.open[name][1] is None or cell in self.open[name][1]
            ]
            found.append(plus(self.nothing, *parts, *open_))
        return found

    def read(self, event: Event) -> None:  # noqa: C901 (a case each)
        """Takes the next event in."""
        body, kind, now = event.body, event.type, event.time
        command = body["command"]
        if kind == "population.registered.v1":
            self.values = {k: list(v) for k, v in sorted(command["dimensions"].items())}
        elif kind == "population.extended.v1":
            for name, values in body["added"].items():
                self.extend(name, values, command.get("attested_new", False), now)
        elif kind == "policy.adopted.v1":
            self.adopt(body["epochs"].get("w"), command["policy"]["rules"])
        elif kind == "grant.reserved.v1" and command["dataset"] == "d":
            name, total = f"g{event.sequence}", Charge.from_json(body["total"])
            subjects = command.get("subjects")
            cells = None if subjects is None else self.cells(subjects)
            self.open[name] = command, cells, total
            if self.window:
                self.held[name] = self.units(total)
        elif kind == "invocation.recorded.v1" and command["dataset"] == "d":
            subjects = command.get("subjects")
            whole = subjects is None or body.get("charged_to") == "everyone"
            cells = None if whole else self.cells(subjects)
            self.spend(cells, self.units(Charge.from_json(body["total"])), now)
        elif kind in ENDS:
            name = command["grant"]
            final = Charge.from_json(body["charge"]) if "charge" in body else Charge()
            if name in self.held:
                expired = kind == "grant.expired.v1"
                self.spend(self.open[name][1], self.units(final), now, may_run=expired)
            self.held.pop(name, None)
            self.open.pop(name, None)
        elif kind == "ledger.recovered.v1":
            for name, sums in self.held.items():
                self.spend(self.open[name][1], sums, now, may_run=True)
            self.held.clear()
            self.open.clear()
        elif kind == "ledger.carried_over.v1":
            for account in command["accounts"]:
                if (account["rule"], account["epoch"]) == ("w", self.epoch) and self.window:
                    self.lift(self.units(Charge.from_json(account["used"])), now)

    def spend(self, cells: set[Cell] | None, sums: Sum, now: int, *, may_run: bool = False) -> None:
        """Spends on cells; None stands for everyone, those to come included, but those who are
        attested new only if it may still run.
        """
        if self.window:
            self.spent.append((now, cells, sums, may_run))
            self.true.append((now, cells, sums, may_run))

    def extend(self, name: str, values: list[str], new: bool, now: int) -> None:
        """Appends values: their cells have at least what those beside them had, or what may still
        run on members who were in no data.
        """
        axis, old = list(self.values).index(name), self.cells()
        for known in (self.spent, self.true) if new else ():
            known[:] = [
                (at, old if on is None and not lasts else on, sums, lasts)
                for at, on, sums, lasts in known
            ]
        before = {cell: self.narrow(cell, now) for cell in old} if self.window else {}
        was = len(self.values[name])
        self.values[name] += values
        for grant, (command, cells, total) in list(self.open.items()):
            subjects = command.get("subjects")
            terms = subjects if isinstance(subjects, list) else [subjects or {}]
            covered = [term for term in terms if name not in term]
            if cells is None or not covered:
                continue
            more = {cell for cell in self.cells(covered) if cell[axis] >= was}
            self.open[grant] = command, cells | more, total
            if new and self.window and grant not in self.held:
                self.spend(more, self.units(total), now)
        for cell in self.cells() - old if self.window and not new else ():
            beside = [
                s
                for c, s in before.items()
                if (*c[:axis], *c[axis + 1 :]) == (*cell[:axis], *cell[axis + 1 :])
            ]
            most = tuple(map(max, zip(*beside, strict=True)))
            rest = minus(
                most,
                plus(
                    self.nothing,
                    *(s for grant, s in self.held.items() if cell in (self.open[grant][1] or ())),
                ),
            )
            self.spent.append((now, {cell}, tuple(max(0, amount) for amount in rest), False))

    def adopt(self, epoch: Any, rules: list[dict[str, Any]]) -> None:
        """Another policy: the window goes on, or starts empty."""
        if epoch is None:
            self.window, self.spent, self.true, self.held = None, [], [], {}
            return
        [rule] = [rule for rule in rules if rule["id"] == "w"]
        if epoch["start"] not in ("kept", "carried"):
            self.spent, self.true, self.held = [], [], {}
        self.window = Window.read(rule.get("window") or rule["refresh"])
        self.epoch = epoch["number"]
        orders = [f"tau_{order}" for order in epoch.get("renyi", ())]
        more = ("epsilon_squared", "rho", *orders, "mu_squared") if orders else ()
        self.axis = ("epsilon", "delta", *more)

    def lift(self, least: Sum, now: int) -> None:
        """No cell has less, nor any that comes later; what is open is spent."""
        for name, sums in self.held.items():
            self.spend(self.open[name][1], sums, now)
        self.held.clear()
        wide = self.wide(now)
        floor = tuple(max(0, a) for a in minus(least, wide))
        cells = sorted(self.cells())
        lacking = [tuple(max(0, a) for a in minus(least, s)) for s in self.sums(now)]
        self.spent = [(at, on, sums, on is None) for at, on, sums, _ in self.spent]
        self.spent.append((now, None, floor, True))
        for cell, lack in zip(cells, lacking, strict=True):
            self.spent.append((now, {cell}, minus(lack, floor), False))
            self.true.append((now, {cell}, lack, False))


ENDS = (
    "grant.committed.v1",
    "grant.released.v1",
    "grant.expired.v1",
    "sparse_vector.closed.v1",
)

# -- random ledgers --------------------------------------------------------------------------

MECHANISMS = (
    [laplace("0.05")],
    [laplace("0.07", 3)],
    [declared("0.02", "0.000001"), laplace("0.01")],
    [gaussian("0.03")],
    [NON_PRIVATE],
)
GROUPS: tuple[Any, ...] = (
    None,
    {"sex": ["f"]},
    {"age": ["1"]},
    {"age": ["2"], "sex": ["m"]},
    [{"sex": ["m"]}, {"age": ["1"]}],
    {"age": {"from": "1", "to": "2"}},
)
POLICIES = (
    window("12h", "0.9") + "  - {id: nearly, of: w, at: 60%}\n",
    window("12h", "1.1"),
    window("12h", "0.9"),
    window("1d", "0.9"),
    window("month", "0.9"),
    "  - {id: w, refresh: daily, limit: {epsilon: 0.9}}\n" + WIDE,
    "  - {id: w, refresh: daily, limit: {epsilon: 1.1}}\n" + WIDE,
    "  - {id: w, refresh: weekly, limit: {epsilon: 1}}\n" + WIDE,
    "  - {id: w, window: 12h, limit: {epsilon: 1, delta: 1e-5}, gate: zcdp}\n" + WIDE,
    WIDE,
)
spending = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "record"]),
    st.integers(0, len(MECHANISMS) - 1),
    st.integers(0, len(GROUPS) - 1),
)
settling = st.tuples(
    st.sampled_from(["commit", "commit", "part", "release", "expire"]), st.integers(0, 5)
)
plain = spending | spending | settling
jumps = st.sampled_from([1, 60, 1_800, 21_600, 43_199, 43_200, 86_400, 2_700_000])
waiting = st.tuples(st.just("wait"), jumps, st.integers(-1, 1))
rare = st.one_of(
    st.tuples(st.just("extend"), st.sampled_from(["age", "sex"]), st.booleans()),
    st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1)),
    st.tuples(st.just("carry"), st.sampled_from(["0.1", "0.3", "0.8"])),
    st.just(("recover",)),
    st.just(("session",)),
    st.tuples(st.just("batch"), st.lists(spending, min_size=1, max_size=3)),
    st.tuples(st.just("undone"), st.lists(plain | waiting, min_size=1, max_size=4)),
    st.tuples(st.just("look"), jumps),
)
todo = st.lists(plain | plain | waiting | rare, min_size=5, max_size=45)


def opened() -> Book:
    """A ledger to begin with."""
    book = Book()
    book.register({"age": ["1", "2"], "sex": ["f", "m"]})
    book.dataset("d")
    book.policy(POLICIES[0])
    return book


def do(book: Book, op: tuple[Any, ...]) -> None:
    """One operation; what is refused as a problem leaves no event."""
    with suppress(Problem):
        _do(book, op)


def _do(book: Book, op: tuple[Any, ...]) -> None:  # noqa: C901 (a case each)
    grants = list(book.state.grants.in_order())
    match op:
        case ("ask" | "record" as what, stated, group):
            kind = "ask_grant" if what == "ask" else "record_invocations"
            fields = {"ttl_seconds": 86_400} if what == "ask" else {}
            fields |= {"subjects": GROUPS[group]} if group else {}
            book.do(kind, dataset="d", mechanisms=MECHANISMS[stated], **fields)
        case ("wait", seconds, more):
            book.now += max(1, seconds * SECOND + more)
        case ("extend", name, new):
            values = {k: list(v) for k, v in book.state.people().dimensions}
            if len(values[name]) < 4:
                values[name].append(f"x{book.state.sequence}")
                book.register(values, attested_new=new)
        case ("policy", number):
            book.policy(POLICIES[number], confirmed_by="officer")
        case ("carry", epsilon):
            carry(book, epsilon)
        case ("recover",):
            book.do("recover", "officer", reason="put back", lost=[])
        case ("session",):
            asked = book.do("open_sparse_vector", dataset="d", mechanism=sparse_vector())
            if allowed(asked):
                book.do("count_answers", grant=f"g{asked.sequence}", positives=1, negatives=1)
                book.now += HOUR // 2
                book.do("close_sparse_vector", grant=f"g{asked.sequence}")
        case ("batch", items):
            asks = [
                make("ask_grant", dataset="d", mechanisms=MECHANISMS[m], subjects=GROUPS[g])
                for _, m, g in items
            ]
            book.batch(*asks)
        case ("undone", ops):
            undone(book, ops)
        case ("look", seconds):
            command = make("ask_grant", dataset="d", mechanisms=[laplace("0.05")])
            request = prepare(book.state, "pipe", command, book.now + seconds * SECOND)
            evaluate(book.state, request)
        case (ending, at) if grants:
            settle(book, ending, grants[at % len(grants)])


def undone(book: Book, ops: list[tuple[Any, ...]]) -> None:
    """What is decided and folded in, and then taken back, as after a commit that failed."""
    now, keys, size = book.now, book.keys, len(book.stored)
    before = book.state.frozen().accounts
    keep_journal(book.state)
    for op in ops:
        do(book, op)
    assert rollback(book.state)
    drop_journal(book.state)
    del book.stored[size:]
    book.now, book.keys = now, keys
    assert book.state.frozen().accounts == before


def settle(book: Book, ending: str, grant: Any) -> None:
    """Ends an open grant."""
    if ending == "release":
        book.do("release_grant", grant.by, grant=grant.id, reason="never run")
    elif ending == "expire":
        book.do("expire_grant", SYSTEM, grant=grant.id)
    else:
        stated = grant.document.get("mechanisms", [])[:1] if ending == "part" else []
        fields = {"mechanisms": [m | {"count": 1} for m in stated]} if stated else {}
        book.do("commit_grant", grant.by, grant=grant.id, **fields)


def looks(book: Book, naive: Naive) -> Iterator[int]:
    """Now, and around each stamp at which something is to pass."""
    assert naive.window is not None
    yield book.now
    for at in sorted({naive.window.ends(at) for at, *_ in naive.spent})[:4]:
        yield from (now for now in (at - 1, at) if now >= book.now)


def agrees(book: Book, naive: Naive) -> None:
    """The account counts what the naive model counts, now and later; never less than is surely
    inside, and never less than nothing.
    """
    if naive.window is None:
        return
    for now in looks(book, naive):
        account = book.state.frozen(now).seen(book.key("w"))
        sums = cells_of(account.used)
        assert sums == naive.sums(now)
        for mine, least in zip(sums, naive.surely(now), strict=True):
            assert all(a >= b >= 0 for a, b in zip(mine, least, strict=True))
        most = [max(column) for column in zip(*sums, strict=True)]
        assert all(a <= b for a, b in zip(most, account.bound, strict=False))


@settings(max_examples=examples(120))
@given(todo)
@example(
    [
        ("ask", 0, 2),
        ("commit", 0),
        ("wait", 21_600, 0),
        ("carry", "0.3"),
        ("extend", "age", False),
        ("wait", 21_600, 0),
        ("ask", 1, 1),
        ("extend", "age", False),
        ("release", 0),
    ]
)
def test_it_counts_what_a_list_of_spendings_adds_up_to(ops: list[tuple[Any, ...]]) -> None:
    """Whatever happens in whatever order, with whatever jumps of time."""
    book, naive = opened(), Naive()
    known = 0
    for op in ops:
        book.now += SECOND
        do(book, op)
        for body in book.stored[known:]:
            naive.read(Event.from_bytes(body))
        known = len(book.stored)
        agrees(book, naive)


def apply_all(state: State, stored: list[bytes]) -> None:
    """Folds further events in."""
    for body in stored:
        follow(state, body)


@settings(max_examples=examples(60))
@given(todo, st.integers(1, 6))
def test_live_replay_and_a_restart_are_one(ops: list[tuple[Any, ...]], every: int) -> None:
    """Decided live or again, folded, gone on with from snapshots: the same to the byte."""
    live, restarted = opened(), opened()
    for number, op in enumerate(ops):
        for book in (live, restarted):
            book.now += SECOND
        do(live, op)
        if number % every == 0:
            restarted.state = load(live.name, b"".join(dump(restarted.state)))
        if op[0] != "look":  # nor does it matter who has looked
            do(restarted, op)
    assert live.stored == restarted.stored
    replayed = last_replay(live.name, live.stored)
    assert replayed.findings == []
    folded = fold(live.name, map(Event.from_bytes, live.stored))
    states = live.state, restarted.state, replayed.state, folded
    assert all(state.frozen().accounts == folded.frozen().accounts for state in states)
    if not any(op[0] == "undone" for op in ops):  # else others have left names behind
        assert all(dump(state) == dump(folded) for state in states)
    assert load(live.name, b"".join(dump(folded))) == folded


@settings(max_examples=examples(30))
@given(todo)
def test_the_fleets_tables_add_up_to_what_counts(ops: list[tuple[Any, ...]]) -> None:
    """What has passed is a row too: the plain sum of all rows is what the account holds."""
    book, state, sums = opened(), State("fair"), ChargeSums()
    for op in ops:
        book.now += SECOND
        do(book, op)
    for event in map(Event.from_bytes, book.stored):
        for change in applied(state, event):
            sums.add(change)
    sums.agree(state)


def test_a_snapshot_holds_what_passes() -> None:
    """After a restart long after the last event the account frees what it would have freed."""
    book = hospital(RULES + WIDE, {"age": ["1", "2"]})
    book.dataset("e")
    spend(book, "0.9", subjects={"age": ["1"]})
    spend(book, "0.05")
    book.now += 30 * DAY - 1
    spend(book, "0.1", dataset="e")
    again = load(book.name, b"".join(dump(book.state)))
    assert isinstance(again.accounts[book.key("w")], WindowAccount)
    for later in (0, 1):
        mine = cells_of(again.frozen(book.now + later).seen(book.key("w")).used)
        assert [cell[0] for cell in mine] == counts(book, book.now + later)


def test_what_is_frozen_stays(tmp_path: Path) -> None:
    """A reader's state does not move while the ledger goes on, nor the ledger with the reader."""
    book = hospital(RULES, {"age": ["1", "2"]})
    spend(book, "0.2", subjects={"age": ["1"]})
    book.now += DAY
    spend(book, "0.1")
    reader = book.state.frozen(book.now)
    later = book.state.frozen(START + 30 * DAY)
    book.now += DAY
    spend(book, "0.3", subjects={"age": ["1"]})
    key = book.key("w")
    assert [cell[0] for cell in cells_of(reader.seen(key).used)] == [300_000_000, 100_000_000]
    assert [cell[0] for cell in cells_of(later.seen(key).used)] == [100_000_000, 100_000_000]
    assert counts(book) == [600_000_000, 100_000_000]


# -- an adaptive attacker --------------------------------------------------------------------


def test_no_path_starts_more_than_the_limit_inside_one_fixed_window() -> None:
    """An attacker who sees each answer, and spends, waits, holds grants back and releases as it
    likes, starts at most the limit inside a window that was fixed in advance.
    """
    book = hospital("  - {id: w, window: 12h, limit: {epsilon: 1}}\n")
    spend(book, "0.5")
    first = book.now + 6 * HOUR
    keep_journal(book.state)
    paths = attack(book, (first, first + 12 * HOUR), 6, 0)
    rollback(book.state)
    assert paths == 10**9


def attack(book: Book, fixed: tuple[int, int], left: int, began: int) -> int:
    """The most units of epsilon that some path starts inside ``fixed``; ``began``: so far."""
    best = began
    if not left:
        return best
    journal = book.state.journal
    assert journal is not None
    for move in ("0.5", "0.3", "wait", "commit", "release"):
        mark, now, keys, size = len(journal), book.now, book.keys, len(book.stored)
        more = 0
        if move == "wait":
            book.now += 6 * HOUR
        elif move in ("commit", "release"):
            grants = list(book.state.grants.in_order())
            if not grants or grants[-1].due(book.now):
                continue
            settle(book, move, grants[-1])
            if move == "release" and fixed[0] <= grants[-1].opened < fixed[1]:
                more = -grants[-1].total.finite[0]  # it was never run
        else:
            asked = book.grant(laplace(move), ttl_seconds=86_400)
            inside = fixed[0] <= book.now < fixed[1]
            more = int(asked.body["total"]["epsilon"]) * (allowed(asked) and inside)
        best = max(best, attack(book, fixed, left - 1, began + more))
        rollback(book.state, mark)
        del book.stored[size:]
        book.now, book.keys = now, keys
    return best
