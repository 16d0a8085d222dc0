"""Differentially private queries that pay for themselves.

::

    from accountant import queries
    from accountant.client import Client

    with Client.from_env() as ledger:
        survey = queries.dataset(ledger, "affairs", frame, bounds={"age": (17, 42)})
        query = survey.where(education="advanced degree").mean("age", epsilon=0.1)
        query.mechanisms, query.error(0.95, records=600), query.cost()   # nothing is spent yet
        answer = query.release(purpose="annual report")
        answer.value, answer.error, answer.receipt

A query asks for its grant, draws its noise, commits, and returns the answer with its 95 % error.
README.md beside this file says how it is built, and how to add a kind of query. It runs beside the
data, and needs OpenDP and NumPy: ``pip install 'privacy-accountant-client[queries]'``.
"""

from accountant.queries.collusion import collude
from accountant.queries.dataset import Dataset, dataset
from accountant.queries.query import Answer, Error, Query, Receipt
from accountant.queries.records import Population
from accountant.queries.steps import Step

__all__ = [
    "Answer",
    "Dataset",
    "Error",
    "Population",
    "Query",
    "Receipt",
    "Step",
    "collude",
    "dataset",
]
