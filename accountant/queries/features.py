"""The best of many features, by the exponential mechanism and by the sparse vector technique.

A feature is scored by how many records have the same value in its column as in the target's. The
exponential mechanism looks at all scores and names one near the best. The sparse vector technique
goes through the features in order, and names those at about a threshold or above, until it has
named so many. The first always costs its epsilon; of the second, what was not found comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import numpy as np

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism
from accountant.client.results import Preview
from accountant.queries.choosing import choose
from accountant.queries.frame import Column, agree, listed
from accountant.queries.query import CONFIDENCE, Answer, Asking, Error, Query, Reasons
from accountant.queries.records import Records
from accountant.queries.sessions import Comparing, sparse_vector


def agreement(target: str, records: Mapping[str, Column], feature: str) -> int:
    """Return the score: how many records have the same value as ``feature`` and as ``target``."""
    return int(np.count_nonzero(agree(records[feature], records[target])))


def best_feature(data: Records, features: Sequence[str], target: str, *, epsilon: Amount) -> Query:
    """Describe the choice of a feature with a high score. One record that comes can only raise
    scores, each by 1 at most.
    """
    names, unit = _names(features, target), data.unit()
    score = partial(agreement, target)
    return choose(
        data,
        names,
        score,
        unit.records,
        epsilon,
        columns=[*names, target],
        monotonic=unit.present,
    )


def features_above(
    data: Records,
    features: Sequence[str],
    target: str,
    *,
    threshold: Amount,
    epsilon: Amount,
    positives: int = 1,
) -> Search:
    """Describe the search, in their order, for the first features, so many as ``positives``, with
    scores of about ``threshold`` or above.
    """
    names, unit = _names(features, target), data.unit()
    session = sparse_vector(
        data,
        threshold=threshold,
        epsilon=epsilon,
        positives=positives,
        sensitivity=unit.records,
        columns=[*names, target],
        monotonic=unit.present,
    )
    return Search(session, names, target)


def _names(features: Sequence[str], target: str) -> tuple[str, ...]:
    names = listed(features)
    if len(set(names)) != len(names) or len(names) < 2 or target in names:
        raise ValueError("features are at least two, all different, and none is the target")
    return names


@dataclass(frozen=True, slots=True)
class Search:
    """What will run and cost; nothing is drawn and nothing spent before ``release``."""

    session: Comparing
    features: tuple[str, ...]
    target: str

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What will run, as the service will be told."""
        return self.session.mechanisms

    def error(self, confidence: float = CONFIDENCE) -> Error:
        """Return how far a score has to be from the threshold to be certainly told right."""
        return self.session.error(confidence, questions=len(self.features))

    def cost(self, **reasons: Unpack[Reasons]) -> Preview:
        """Return what the ledger would decide now, and what is reserved."""
        return self.session.cost(**reasons)

    def release(self, **asking: Unpack[Asking]) -> Answer:
        """Go through the features and return those that were found, in their order. The receipt's
        charge is what is left when the session is closed.
        """
        ask: Any = [partial(_score, self.target, name) for name in self.features]
        with self.session.open(**asking) as session:
            told = session.ask_all(ask)
        above = zip(self.features, told, strict=False)
        found = tuple(name for name, outcome in above if outcome)
        return Answer(found, self.error(), self.mechanisms, session.receipt)


def _score(target: str, feature: str, records: Mapping[str, Column]) -> int:
    return agreement(target, records, feature)


@dataclass(frozen=True, slots=True)
class Both:
    """What the two ways found, each with its error and what it cost (``receipt.charge``)."""

    chosen: Answer
    found: Answer


def by_both(choice: Query, search: Search, **asking: Unpack[Asking]) -> Both:
    """Release both, one after the other: two grants."""
    if asking.get("idempotency_key") is not None:
        raise ValueError("these are two grants, and one idempotency key is for one of them")
    return Both(choice.release(**asking), search.release(**asking))
