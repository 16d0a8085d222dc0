"""A ledger that is followed piece by piece, and the desk that answers from it."""

from __future__ import annotations

import random
from functools import partial

import pytest
from report_desk import DAY, Desk
from support import declared, laplace

from accountant.publishing.publisher import Publisher
from accountant.reporting import desk as answering
from accountant.reporting import follower
from accountant.reporting.activity import EVERY, Activity
from accountant.reporting.desk import Behind, Page
from accountant.reporting.following import Followed
from accountant.reporting.model import build_report, report
from accountant.reporting.schema import Report
from accountant.reporting.texts import Texts
from accountant.store import Damaged
from accountant.store.ledgers import Signed


def _busy(desk: Desk, seed: int, steps: int = 40) -> None:
    """Grants that end in every way, refusals, records, over some weeks."""
    rnd = random.Random(seed)  # noqa: S311 a reproducible ledger, no secret
    for _ in range(steps):
        desk.forward(rnd.uniform(1, DAY))
        if rnd.random() < 0.3:
            desk.record(laplace("0.5"), purpose=rnd.choice(["a", "b"]))
            continue
        event = desk.grant(declared("0.05"), purpose="ops", ttl_seconds=60)
        if event.type == "grant.reserved.v1" and rnd.random() < 0.5:
            desk.do("commit_grant", grant=f"g{event.sequence}")
        elif rnd.random() < 0.5:
            desk.forward(61)
            desk.service.expire_due()


def _read(page: Page) -> Report:
    return report(page.followed, page.texts, {})


def _texts(desk: Desk) -> Texts:
    return Texts(partial(desk.ledgers.texts, desk.name))


@pytest.mark.parametrize("seed", range(3))
def test_piece_by_piece_is_as_good_as_at_once(desk: Desk, publisher: Publisher, seed: int) -> None:
    """A report of what was followed in pieces, each published between, is that of all events read
    at once, with the last published checkpoint.
    """
    rnd = random.Random(seed)  # noqa: S311
    desk.hospital()
    followed, signed = Followed(desk.name), None
    for _ in range(4):
        _busy(desk, rnd.randrange(1_000), 12)
        if rnd.random() < 0.7:
            signed = publisher.publish(desk.name)
        if rnd.random() < 0.7:
            desk.record(laplace("0.1"))
        rest = desk.ledgers.stream(desk.name, followed.state.sequence)
        followed.follow(rest, _texts(desk), signed)
        found = report(followed, _texts(desk), {})
        assert found == build_report(desk.name, desk.stored(), _texts(desk), signed)
        assert found.ledger.checkpoint is None or found.ledger.checkpoint.continued


def test_a_checkpoint_of_fewer_events_is_held_against_their_leaves(
    desk: Desk, publisher: Publisher
) -> None:
    """What was published of a ledger that is read further by now is compared all the same."""
    desk.hospital()
    signed = publisher.publish(desk.name)
    assert signed is not None
    _busy(desk, 1, 5)

    def asked(published: Signed | None) -> Report:
        found = here.ask(desk.name, _read, 0, published)
        assert isinstance(found, Report)
        return found

    here = answering.Desk(desk.ledgers)
    assert asked(None).ledger.checkpoint is None
    checkpoint = asked(signed).ledger.checkpoint
    assert checkpoint is not None
    assert checkpoint.continued
    other = signed._replace(note=signed.note.replace(b"\n5\n", b"\n4\n"))
    assert other != signed
    checkpoint = asked(other).ledger.checkpoint
    assert checkpoint is not None
    assert not checkpoint.continued


def test_a_text_that_is_erased_is_forgotten(desk: Desk) -> None:
    """Whoever followed a ledger before a text was erased shows it no more afterwards."""
    desk.hospital()
    event = desk.record(laplace("0.1"), purpose="secret cause")
    here = answering.Desk(desk.ledgers)
    assert "secret cause" in str(here.ask(desk.name, _read, 0))
    desk.service.erase(desk.name, "officer", event.sequence, ["purpose"], "asked to")
    for _ in range(2):
        assert "secret cause" not in str(here.ask(desk.name, _read, 0))


@pytest.mark.parametrize(("worth", "many"), [(10_000, 10_000), (1, 10_000), (10_000, 1)])
def test_whoever_is_impatient_is_told_how_far_it_was_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, worth: int, many: int
) -> None:
    """A long ledger, or one of many cells, is read on each time that it is asked about, by another
    process also between questions, and the answer at the end is that of all its events.
    """
    monkeypatch.setattr(follower, "_LEAST", 0.0)
    monkeypatch.setattr(answering, "WORTH", worth)
    monkeypatch.setattr(answering, "MANY_CELLS", many)
    desk.hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    for _ in range(4):
        desk.all(
            [("record_invocations", "p", _recorded()) for _ in range(20 if worth > 1 else 400)]
        )
    here = answering.Desk(desk.ledgers)
    try:
        found = [here.ask(desk.name, _read, 0, None, 0)]
        while isinstance(found[-1], Behind):
            found.append(here.ask(desk.name, _read, 0, None, 0))
        desk.record(laplace("0.1"))
        found.append(here.ask(desk.name, _read, 0))
        assert (here._helpers is None) == (worth > 1 < many)
    finally:
        here.close()
    read = [one.read for one in found if isinstance(one, Behind)]
    if worth > 1 < many:
        assert read == [*range(1, len(read) + 1)]
    else:  # the process begins anew, and gets further
        assert read
        assert read[1:] == sorted(set(read[1:]))
    assert found[-1] == build_report(desk.name, desk.stored(), _texts(desk))


def test_nobody_waits_for_what_is_too_much_to_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes what is known has it at once while much is left to read, however patient they
    are; what is soon read is waited for.
    """
    monkeypatch.setattr(follower, "_LEAST", 0.0)
    monkeypatch.setattr(follower, "_SOON", 6)
    desk.hospital("  - {id: a, limit: {epsilon: 1000}}\n")
    desk.all([("record_invocations", "p", _recorded()) for _ in range(9)])
    here, size = follower.Follower(desk.ledgers), desk.service.head(desk.name).size
    hasty = follower.Asked(desk.name, _sequence, None, 0, patience=0.0, early=True)
    patient = hasty._replace(patience=3600.0)
    assert here.answer(hasty).behind == (1, size)
    found = [here.answer(patient).found for _ in range(size - 6)]
    assert found == [*range(2, size - 5), size]


def _sequence(page: Page) -> int:
    return page.followed.state.sequence


def _recorded() -> dict[str, object]:
    return {"dataset": "d", "mechanisms": [laplace("0.1")]}


def _broken(page: Page) -> None:
    raise ValueError(f"event {page.followed.state.last} is damaged")


@pytest.mark.parametrize("worth", [10_000, 1])
def test_damage_is_told_and_the_desk_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    """A ledger that cannot be read is an error of the store, and the next question is answered."""
    monkeypatch.setattr(answering, "WORTH", worth)
    desk.hospital()
    here = answering.Desk(desk.ledgers)
    try:
        with pytest.raises(Damaged, match="event 3 is damaged"):
            here.ask(desk.name, _broken, 0)
        assert isinstance(here.ask(desk.name, _read, 0), Report)
    finally:
        here.close()


def test_requests_are_counted_by_the_day_on_which_they_ended(desk: Desk) -> None:
    """Each day knows how many requests were granted, flagged, refused and recorded, on each dataset
    and in all, and of the latest ones the median.
    """
    desk.hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: f, action: flag, at_most: {epsilon: 0.3}}\n"
    )
    activity, asked = Activity(), ["0.1", "0.4", "0.2", "5"]
    events = [desk.grant(laplace(epsilon)) for epsilon in asked]
    desk.forward(DAY)
    events.append(desk.record(laplace("0.3")))
    for event in events:
        activity.add(event)
    first = events[0].time // (DAY * 1_000_000)
    today = activity.within(first, first)
    assert today == {"admitted": 3, "flagged": 1, "refused": 1}
    assert activity.within(first, first + 1, "d")["recorded"] == 1
    assert activity.within(first, first + 1) == activity.within(first, first + 1, "d")
    assert activity.within(first + 2, first + 9, EVERY) == {}
    usual = activity.usual("d")
    assert usual is not None
    assert usual.epsilon == 300_000_000
    assert activity.usual("other") is None


def test_an_admission_after_waiting_is_a_step_of_the_burndown(desk: Desk) -> None:
    """What waited and was granted later is drawn when it was granted, as any grant."""
    desk.hospital()
    first = desk.grant(laplace("0.9"), ttl_seconds=10**6)
    desk.grant(laplace("0.5"), ttl_seconds=10**6, wait="7d")
    desk.forward(DAY)
    desk.do("release_grant", grant=f"g{first.sequence}", reason="cancelled")
    admitted = desk.stored()[-1]
    assert b'"type":"grant.admitted.v1"' in admitted.body
    desk.forward(DAY)
    desk.grant(laplace("0.1"), ttl_seconds=10**6)
    [series] = desk.report().series
    at = {point.sequence: point.spent_and_reserved for point in series.points}
    assert at[admitted.sequence] == "0.5"


def test_a_late_ancestor_begins_its_burndown_with_what_was_used(desk: Desk) -> None:
    """It is drawn from its registration on, with what grants hold; where it did not end a line
    begins, it rises.
    """
    desk.hospital()
    desk.dataset("e", parents=["n/x"])
    desk.record(laplace("0.25"), dataset="e")
    desk.dataset("x", parents=["n/y"])
    opened = desk.grant(laplace("0.5"), dataset="e")
    desk.dataset("y")
    late = desk.stored()[-1].sequence
    desk.do("release_grant", grant=f"g{opened.sequence}", reason="not run")
    drawn = {one.dataset: one.points for one in desk.report().series}
    told = [(one.sequence, one.spent, one.spent_and_reserved) for one in drawn["y"]]
    assert told == [(late, "0.25", "0.75"), (late + 1, "0.25", "0.25")]
