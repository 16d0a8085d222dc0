"""The report of a period over HTTP: who may read it, in which form, and what is no report."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support import World, ask, laplace

from accountant.budget.facts import SECOND


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with a charge."""
    made = world().hospital()
    assert made.post("/invocations", ask(laplace("0.1"), purpose="ops")).is_success
    return made


def _today(made: World) -> str:
    return datetime.fromtimestamp(made.service.time() / SECOND, UTC).date().isoformat()


def test_every_form_of_a_period_is_served_to_those_who_oversee(made: World) -> None:
    """With its media type and a name; twice the same bytes; a pipeline gets none."""
    today = _today(made)
    path = f"/report?kind=statement&dataset=d&from={today}&to={today}&format="
    for form, media in (
        ("html", "text/html; charset=utf-8"),
        ("csv", "text/csv; charset=utf-8"),
        ("json", "application/json"),
        ("pdf", "application/pdf"),
    ):
        for who in ("admin", "officer", "auditor"):
            answer = made.get(path + form, who=who)
            assert answer.is_success, answer.text
            assert answer.headers["content-type"] == media
            assert (
                f'fair-statement-d-{today}_{today}.{form}"'
                in (answer.headers["content-disposition"])
            )
        assert made.get(path + form, who="auditor").content == answer.content
        assert made.get(path + form, who="pipeline").status_code == 403
    part = made.get(path + "json", who="auditor").json()["parts"][0]
    assert part["closing"]["spent"] == "0.1"
    month = made.get(f"/report?month={today[:7]}&format=json", who="auditor").json()
    assert (month["head"]["kind"], month["head"]["finished"]) == ("officer", False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("month=2026-13", "unknown-report"),
        ("month=2099-01", "unknown-report"),
        ("kind=officer", "unknown-report"),
        ("format=pdf", "unknown-report"),
        ("dataset=d", "unknown-report"),
        ("kind=statement&from=2026-01-01", "unknown-report"),
        ("kind=officer&dataset=d&from=2026-01-01", "unknown-report"),
        ("kind=statement&dataset=nothing&from=2026-01-01", "unknown-dataset"),
        ("kind=weekly&from=2026-01-01", "invalid-request"),
        ("months=2026-01", "unknown-parameter"),
    ],
)
def test_what_is_no_report_is_told(made: World, query: str, code: str) -> None:
    """Each by its code, with what to write."""
    answer: Any = made.get(f"/report?{query}", who="auditor")
    assert answer.status_code == 422
    assert str(answer.json()["type"]).rpartition(":")[2] == code
