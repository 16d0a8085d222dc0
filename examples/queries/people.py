"""The data: two public tables that statsmodels ships, as datasets of a ledger.

``patients`` is the RAND Health Insurance Experiment (20,190 records, USA 1974-1982), ``women`` is
Fair's survey of 6,366 married women (1974). Both are public, so that true numbers may stand beside
noisy ones. A pipeline on private data must never do that.

The health table does not say which records are of one patient, so a record is the privacy unit: one
patient's year. In a table that does, the patient would be the unit, with ``records_per_unit``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from accountant import queries
from accountant.client import Client
from accountant.queries import Dataset

Table = dict[str, Any]
"""Columns by name."""

RECORDS: Final = 20_190
WOMEN: Final = 6_366

PLANS: Final = {0: "free", 25: "25 %", 50: "50 %", 95: "95 %", 100: "individual"}
"""What a patient pays of a bill, in percent; ``individual`` has a limit for each person."""
HEALTH: Final = ["excellent", "good", "fair", "poor"]
VISITS: Final = ["none", "1 or 2", "3 to 5", "6 or more"]
RATINGS: Final = ["very poor", "poor", "fair", "good", "very good"]
"""What a woman says of her marriage, from 1 to 5."""

CELLS: Final = {"plan": None, "health": HEALTH, "limited": [0, 1], "often": VISITS}
"""A finite universe of patients: 160 cells. The plan is a registered dimension."""

_OF_PATIENTS: Final = {
    "visits": (0, 20),  # to a doctor in a year; more count as 20
    "limit": (0, 9),  # the logarithm of the most that they pay themselves in a year, in dollars
    "payment": (0, 8),  # the logarithm of what they were paid for taking part, in dollars
    "share": (0, 1),  # the payment as a share of a million dollars
    "illness": (0, 60),  # an index of chronic illnesses
}
_OF_WOMEN: Final = {"affair": (0, 1), "rating": (1, 5), "years": (0, 25), "religious": (1, 4)}


@cache
def health() -> Table:
    """Return the records of the health experiment. Raise ValueError if they are not those known."""
    from statsmodels.datasets import randhie  # noqa: PLC0415 (slow to import)

    found = {name: column.to_numpy() for name, column in randhie.load_pandas().data.items()}
    if len(found["mdvis"]) != RECORDS:
        raise ValueError("statsmodels ships another health experiment than these examples know")
    percent = np.rint(np.exp(found["lncoins"]) - 1).astype(int)
    state = 1 * found["hlthg"] + 2 * found["hlthf"] + 3 * found["hlthp"]
    often = np.digitize(found["mdvis"], [1, 3, 6])
    return {
        "record": np.arange(RECORDS),
        "visits": found["mdvis"],
        "often": np.array(VISITS)[often],
        "plan": np.array([PLANS[each] for each in percent.tolist()]),
        "health": np.array(HEALTH)[state.astype(int)],
        "limited": (found["physlm"] > 0).astype(int),
        "illness": found["disea"],
        "limit": found["fmde"],
        "payment": found["lpi"],
        "share": np.exp(found["lpi"]) / 1e6,
    }


@cache
def survey() -> Table:
    """Return the answers of the women. Raise ValueError if they are not those known."""
    from statsmodels.datasets import fair  # noqa: PLC0415 (slow to import)

    found = {name: column.to_numpy() for name, column in fair.load_pandas().data.items()}
    if len(found["affairs"]) != WOMEN:
        raise ValueError("statsmodels ships another survey than these examples know")
    rating = found["rate_marriage"].astype(int)
    return {
        "affair": (found["affairs"] > 0).astype(int),
        "rating": rating,
        "said": np.array(RATINGS)[rating - 1],
        "years": found["yrs_married"],
        "religious": found["religious"].astype(int),
    }


def part(table: Table, rows: Any) -> Table:
    """Return some rows of a table."""
    return {name: column[rows] for name, column in table.items()}


def mixed(table: Table) -> Table:
    """Return a table in an order that says nothing: the health experiment lists families one after
    the other, so that its first thousand records are no sample.
    """
    size = len(next(iter(table.values())))
    return part(table, np.random.default_rng(1974).permutation(size))


def patients(ledger: Client, dataset: str, table: Table | None = None) -> Dataset:
    """Return records of the health experiment, charged to a dataset of the ledger."""
    rows = health() if table is None else table
    return queries.dataset(ledger, dataset, rows, unit="record", bounds=_OF_PATIENTS)


def women(ledger: Client, dataset: str, table: Table | None = None) -> Dataset:
    """Return answers of the survey, charged to a dataset of the ledger."""
    rows = survey() if table is None else table
    return queries.dataset(ledger, dataset, rows, bounds=_OF_WOMEN)
