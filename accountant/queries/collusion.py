"""One adversary over all clients: what shares of a budget for each client protect against, and what
they do not.

Clients who each stay within a share of their own may be one person, or talk to each other. Their
answers to the same question, averaged, have less noise than any one of them was allowed to buy. So
a person is protected by the limit that counts all clients together, and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import fmean
from typing import Unpack

from accountant.client.results import Account
from accountant.queries.query import Answer, Asking, Query
from accountant.queries.steps import DiscreteGaussian, Noise


@dataclass(frozen=True, slots=True)
class Collusion:
    """The same question, asked by several clients who share what they learn."""

    answers: tuple[Answer, ...]
    average: float
    """What they know together."""
    alone: float
    """The standard deviation of the noise of one answer."""
    together: float
    """That of their average: smaller by the root of the number of clients."""
    per_client: tuple[Decimal, ...]
    """The epsilon that each was charged: all that its own share sees."""
    for_everyone: Decimal
    """The epsilon of all of them, which is what protects a person."""
    shares: tuple[Account, ...]
    """The accounts of the single clients that the ledger shows (rules with ``per: client``)."""
    totals: tuple[Account, ...]
    """The accounts that count all clients together."""


def collude(queries: Sequence[Query], **asking: Unpack[Asking]) -> Collusion:
    """Release the same query by several clients, and average the answers. Each query is described
    on the same data, through a ledger of its own client. What is charged is charged to the clients
    as to anybody.

    Raise ValueError if they are not the same numeric query of at least two clients; nothing is
    spent then. Raise Refused as soon as a client's request is refused: what was released before is
    charged.
    """
    first = _same(queries)
    answers = tuple(query.release(**asking) for query in queries)
    accounts = [query.on.ledger.accounts() for query in queries]
    shares = {each.client: each for found in accounts for each in found.accounts if each.client}
    totals = tuple(each for each in accounts[-1].accounts if not each.client)
    deviation = _deviation(first)
    return Collusion(
        answers,
        fmean(float(answer.value) for answer in answers),
        deviation,
        deviation / math.sqrt(len(answers)),
        tuple(answer.receipt.charge["epsilon"] for answer in answers),
        sum((answer.receipt.charge["epsilon"] for answer in answers), Decimal(0)),
        tuple(shares.values()),
        totals,
    )


def _same(queries: Sequence[Query]) -> Noise:
    """Return the step of a query that all clients ask."""
    if len(queries) < 2 or len({id(query.on.ledger) for query in queries}) != len(queries):
        raise ValueError("give the same query of at least two clients, each with its own ledger")
    kinds = {(query.kind, query.steps, query.on.ledger.population) for query in queries}
    steps = queries[0].steps
    if len(kinds) != 1 or len(steps) != 1 or not isinstance(steps[0], Noise) or steps[0].size:
        raise ValueError("the clients have to ask the same question, for one noisy number")
    return steps[0]


def _deviation(step: Noise) -> float:
    """Return the standard deviation of the noise that is drawn, in units of the answer."""
    steps = Fraction(step.drawn) * (step.lattice or 1)
    if isinstance(step, DiscreteGaussian):
        return float(steps)
    q = math.exp(-1 / step.drawn)
    return float(step.lattice or 1) * math.sqrt(2 * q) / (1 - q)
