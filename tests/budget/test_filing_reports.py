"""A report that is filed: what the ledger takes, and that it books nothing."""

from __future__ import annotations

from typing import Any

import pytest
from support import SECOND, START, Book, audited, hospital, laplace

from accountant.budget.errors import Invalid

DAY = 86_400 * SECOND
DIGEST = "ab" * 32


def _later() -> Book:
    """A ledger with a charge, the day after it."""
    book = hospital()
    book.record(laplace("0.25"))
    book.now = START + 2 * DAY
    return book


def _filed(book: Book, **more: Any) -> Any:
    asked = {"report": "officer", "first": "2026-09-01", "last": "2026-09-21", "format": "pdf"}
    return book.do("file_report", "olive", **(asked | {"size": 4, "digest": DIGEST} | more))


def test_a_filed_report_stands_in_the_ledger_and_books_nothing() -> None:
    """Its digest, its period and the events that it rests on; replay and the second verifier
    accept it, and every sum is what it was.
    """
    book = _later()
    before = book.used()
    event = _filed(book, report="statement", dataset="d")
    assert event.type == "report.filed.v1"
    command = event.body["command"]
    assert (command["digest"], command["size"], command["dataset"]) == (DIGEST, 4, "d")
    assert book.used() == before
    assert not book.replayed().findings
    audited(book)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"last": "2026-09-30"}, "once its period is over"),
        ({"last": "2026-02-30"}, "once its period is over"),
        ({"first": "2026-09-22"}, "once its period is over"),
        ({"size": 9}, "rests on 9 events, and ledger fair has 5"),
        ({"report": "statement"}, "a statement names its dataset"),
        ({"dataset": "d"}, "a statement names its dataset"),
        ({"report": "statement", "dataset": "nothing"}, "nothing"),
    ],
)
def test_what_is_no_report_of_this_ledger_is_not_filed(fields: dict[str, Any], said: str) -> None:
    """A period that is not over, events that are not there, a dataset that is none."""
    book = _later()
    size = len(book.stored)
    with pytest.raises(Invalid, match=said):
        _filed(book, **fields)
    assert len(book.stored) == size
