"""Requests that wait, in bundles and reports, and after a restart in the middle of a wait."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from house import House, adopt, audit, reasons, resident

from accountant import verify_minimal
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.budget.proposals import digest_of
from accountant.reporting.desk import Desk
from accountant.reporting.files import FORMATS
from accountant.reporting.making import About, report_texts


def test_a_wait_is_audited_from_its_bundle(house: Callable[..., House]) -> None:
    """A text is sealed where the wait began, an admission takes it over, and an erasure is whole:
    both verifiers find nothing, and the report counts the admission as a grant.
    """
    made = resident(house())
    adopt(made, "  - {id: a, limit: {epsilon: 1}}\n", confirmed_by="officer")
    first = made.grant("0.9")
    waiting = made.grant("0.5", wait=3_600, purpose="a table", by="two")
    assert waiting.type == "grant.waiting.v1"
    made = made.again()
    made.do("release_grant", grant=grant_in(first), reason="not run")
    admitted = made.service.event("fair", made.service.state("fair").last)
    assert admitted.type == "grant.admitted.v1"
    bundle = made.bundle()
    assert reasons(audit(bundle)) == []
    assert verify_minimal.verify(io.BytesIO(bundle))["findings"] == []
    made.service.erase("fair", "admin", waiting.sequence, None, "asked for")
    bundle = made.bundle()
    assert reasons(audit(bundle)) == []
    report = report_texts(Desk(made.service.ledgers), made.service, About("fair", None), FORMATS)
    assert "0.5" in report["csv"]


def test_a_failed_commit_admits_nobody(house: Callable[..., House]) -> None:
    """If the commit of a release fails, who it let in waits as before, and is admitted the next
    time.
    """
    made = resident(house())
    adopt(made, "  - {id: a, limit: {epsilon: 1}}\n", confirmed_by="officer")
    first = made.grant("0.9")
    waiting = made.grant("0.5", wait=3_600)
    made.raw(
        "CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    with pytest.raises(Problem):
        made.do("release_grant", grant=grant_in(first), reason="not run")
    assert grant_in(waiting) in made.service.state("fair").waiting.requests
    made.raw("DROP TRIGGER full")
    made.do("release_grant", grant=grant_in(first), reason="not run")
    assert not made.service.state("fair").waiting.requests
    assert reasons(audit(made.bundle())) == []


def test_an_approval_is_audited_with_its_reason(house: Callable[..., House]) -> None:
    """The reason is sealed in the admission, and the request's texts where it began to wait; either
    can be erased.
    """
    made = resident(house())
    adopt(made, "  - {id: a, limit: {epsilon: 1}}\n", confirmed_by="officer")
    adopt(
        made,
        "  - {id: a, limit: {epsilon: 1}}\n"
        "  - {id: big, action: approve, at_most: {epsilon: 0.25}}\n",
    )
    waiting = [made.grant("0.5", purpose="a table", justification="why") for _ in range(2)]
    for one, what in zip(waiting, ("approve_grant", "decline_grant"), strict=True):
        digest = digest_of(one.to_bytes())
        made.do(what, "officer", grant=grant_in(one), digest=digest, reason="a reason")
    last = made.service.state("fair").last
    assert made.service.event("fair", last - 1).type == "grant.admitted.v1"
    assert [one.text for one in made.service.texts("fair", last - 1, last)] == ["a reason"] * 2
    bundle = made.bundle()
    assert reasons(audit(bundle)) == []
    assert verify_minimal.verify(io.BytesIO(bundle))["findings"] == []
    for number in (last - 1, last, waiting[0].sequence):
        made.service.erase("fair", "admin", number, None, "asked for")
    assert reasons(audit(made.bundle())) == []
    assert (
        "0.5"
        in report_texts(Desk(made.service.ledgers), made.service, About("fair", None), FORMATS)[
            "csv"
        ]
    )
