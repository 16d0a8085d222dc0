"""What came back, or began at zero, on a client's word is summed up by client."""

from __future__ import annotations

from report_desk import Desk
from support import gaussian, laplace, sparse_vector

from accountant.budget.facts import grant_in
from accountant.reporting.page import to_html


def test_what_is_taken_on_trust_is_summed_by_client(desk: Desk) -> None:
    """Releases, parts that did not run, positives that were not counted, and new cells."""
    rules = "  - {id: a, limit: {epsilon: 9, delta: 1e-6}}\n"
    people = {"sex": ["f", "m"], "wave": ["1"]}
    desk.hospital(rules, people)
    for epsilon in ("0.5", "0.25"):
        asked = {"dataset": "d", "mechanisms": [laplace(epsilon)]}
        desk.do("release_grant", "ann", grant=grant_in(desk.do("ask_grant", "ann", **asked)),
                reason="it never ran")  # fmt: skip
    grant = grant_in(desk.grant(laplace("0.1", 5)))
    desk.do("commit_grant", grant=grant, mechanisms=[laplace("0.1", 2)])
    session = grant_in(desk.do("open_sparse_vector", dataset="d", mechanism=sparse_vector()))
    desk.do("count_answers", grant=session, positives=2, negatives=9)
    desk.do("close_sparse_vector", grant=session)
    desk.population(people | {"wave": ["1", "2", "3"]}, attested_new=True)
    desk.population({"sex": ["f", "m", "x"], "wave": ["1", "2", "3"]})
    ann, pipe, admin = desk.report().trusted
    assert (ann.client, ann.released, ann.released_epsilon, ann.epsilon) == (
        "ann",
        2,
        "0.75",
        "0.75",
    )
    assert (pipe.client, pipe.in_part, pipe.in_part_epsilon) == ("pipe", 1, "0.3")
    assert (pipe.sessions, pipe.sessions_epsilon, pipe.epsilon) == (1, "0.06", "0.36")
    assert (admin.client, admin.attested_cells, admin.epsilon) == ("admin", 4, "0")
    text = to_html(desk.report())
    assert "Taken on trust" in text


def test_what_is_charged_in_full_is_not_taken_on_trust(desk: Desk) -> None:
    """A grant that expires, or is committed whole, gives nothing back."""
    desk.hospital()
    desk.do("commit_grant", grant=grant_in(desk.grant(laplace("0.1"))))
    desk.grant(laplace("0.1"), ttl_seconds=60)
    desk.forward(61)
    desk.service.expire_due()
    assert desk.report().trusted == ()
    assert "Taken on trust" not in to_html(desk.report())


def test_a_release_without_an_epsilon_is_counted(desk: Desk) -> None:
    """Its sum has no bound; the number says of how many."""
    desk.hospital("  - {id: a, limit: {epsilon: 9, delta: 1e-6}}\n")
    grant = grant_in(desk.grant(gaussian("0.1")))
    desk.do("release_grant", grant=grant, reason="it never ran")
    [one] = desk.report().trusted
    assert (one.released, one.released_epsilon, one.epsilon, one.unbounded) == (
        1,
        "infinite",
        "infinite",
        1,
    )
