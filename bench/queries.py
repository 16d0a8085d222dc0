"""Queries on large tables: a median, a unary encoding, and weights that answer many questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from accountant import testing
from accountant.client import Client
from accountant.queries import dataset

PEOPLE: Final = 10**6
CATEGORIES: Final = 14
PLACES, KINDS = 1000, 100  # 10^5 cells
QUESTIONS: Final = 1000

Row = dict[str, Any]


def large(_: Path) -> list[Row]:
    """Seconds of queries on a million values, grant and commit included; each is new."""
    numbers = np.random.default_rng(4)
    table = {
        "income": numbers.lognormal(10, 1, PEOPLE),
        "answer": numbers.integers(0, CATEGORIES, PEOPLE).astype(str),
    }
    names = [str(name) for name in range(CATEGORIES)]
    with _ledger() as ledger:
        data = dataset(ledger, "visits", table, bounds={"income": (0, 10**6)})
        median = _seconds(lambda: data.median("income", epsilon=0.1).release(purpose="bench"))
    with _ledger(neighbouring="replace_one") as ledger:  # each unit is there, and reports
        data = dataset(ledger, "visits", table)
        unary = _seconds(lambda: data.unary("answer", names, epsilon=1).release(purpose="bench"))
    return [
        {"what": f"median of {PEOPLE:,}", "value": median, "unit": "s"},
        {"what": f"unary encoding of {PEOPLE:,}", "value": unary, "unit": "s"},
    ]


def weights(_: Path) -> list[Row]:
    """Seconds of private multiplicative weights: a thousand questions over 10^5 cells."""
    numbers, rows = np.random.default_rng(4), 200_000
    table = {
        "place": numbers.geometric(0.002, rows).clip(1, PLACES) - 1,
        "kind": numbers.geometric(0.05, rows).clip(1, KINDS) - 1,
    }
    questions = []
    for _number in range(QUESTIONS):
        mask = np.zeros((PLACES, KINDS), dtype=bool)
        place, kind = numbers.integers(0, PLACES - 100), numbers.integers(0, KINDS - 10)
        mask[place : place + 400, kind : kind + 40] = True
        questions.append(mask.reshape(-1))
    with _ledger() as ledger:
        data = dataset(ledger, "visits", table)
        cells = {"place": range(PLACES), "kind": range(KINDS)}
        asked = data.online_weights(cells, records=rows, epsilon=5, updates=300, threshold=12_000)
        with asked.open(purpose="bench", give_back=True) as session:
            taken = _seconds(lambda: session.ask_all(questions), times=1)
    return [{"what": f"{QUESTIONS:,} questions, 10^5 cells", "value": taken, "unit": "s"}]


@contextmanager
def _ledger(neighbouring: str = "add_or_remove_one") -> Iterator[Client]:
    with testing.ledger(epsilon=1000, membership="public", neighbouring=neighbouring) as ledger:
        yield ledger


def _seconds(work: Callable[[], Any], times: int = 3) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)
