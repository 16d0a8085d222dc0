"""Random mechanisms of every kind, as the JSON that a ledger holds of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Final

Json = dict[str, Any]
ADD, REPLACE, ZERO_OUT = "add_or_remove_one", "replace_one", "zero_out"
LOCAL: Final = ("randomized_response", "unary_encoding")
UNSAMPLED: Final = (*LOCAL, "tree_aggregation", "gaussian_mixture", "repeat_and_select")

PLANS: Final[tuple[Json, ...]] = (
    {"mechanisms": [{"kind": "gaussian", "sensitivity": "1", "scale": "17", "count": 4}],
     "epsilon": "0.9", "delta": "1e-6"},
    {"mechanisms": [{"kind": "gaussian", "sensitivity": "1", "scale": "40"},
                    {"kind": "gaussian", "sensitivity": "2", "scale": "90", "count": 3}],
     "epsilon": "0.5", "delta": "1e-7"},
    {"mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "20", "count": 2}],
     "epsilon": "0.11", "delta": "1e-9"},
    {"mechanisms": [{"kind": "gaussian", "sensitivity": "1", "scale": "5", "count": 3}],
     "epsilon": "0.2", "delta": "1e-8"},
)  # fmt: skip
"""Few, for composing one takes long: the last states less than it costs."""


def amount(value: float, digits: int = 3) -> str:
    """``value`` with so many significant digits: a decimal that every machine spells alike."""
    return f"{value:.{digits - 1}e}"


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Between ``low`` and ``high``, each size as likely as another."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


class Mechanisms:
    """Makes mechanisms for a population with the relation ``relation``, of an epsilon of about
    ``typical``. ``private``: most are stated so that a part of the population may be charged.
    """

    def __init__(self, rng: Random, relation: str, typical: float, *, private: bool) -> None:
        self.rng, self.relation, self.typical, self.private = rng, relation, typical, private
        self.simple: dict[str, Callable[[float], Json]] = {
            "laplace": self._laplace,
            "discrete_laplace": self._discrete_laplace,
            "gaussian": self._gaussian,
            "discrete_gaussian": self._discrete_gaussian,
            "exponential": self._selection,
            "permute_and_flip": self._selection,
            "randomized_response": self._response,
            "unary_encoding": self._unary,
            "sparse_vector": self._sparse_vector,
            "tree_aggregation": self._trees,
            "gaussian_mixture": self._moves,
        }
        self.compound: dict[str, Callable[[float], Json]] = {
            "composed": self._composed,
            "subsample_and_aggregate": self._aggregated,
            "propose_test_release": self._proposed,
            "multiplicative_weights": self._weights,
            "boosting": self._boosting,
            "reusable_holdout": self._holdout,
            "plan": self._plan,
            "repeat_and_select": self._tuning,
        }
        self.stated = {"declared": self._declared, "non_private": lambda _: Json()}

    def some(self, kind: str | None = None) -> Json:
        """A mechanism of ``kind``, or of any."""
        rng = self.rng
        if kind is None:
            kind = self._kind()
        makers = self.simple | self.compound | self.stated
        body = {"kind": kind} | makers[kind](log_uniform(rng, self.typical / 8, self.typical * 4))
        return body if kind in ("plan", "non_private") else self._whole(body)

    def _kind(self) -> str:
        """Any kind; seldom one that has no finite cost here."""
        rng = self.rng
        kind = rng.choice([*self.simple] * 4 + [*self.compound] + ["declared"] * 3)
        if kind in LOCAL and self.relation != REPLACE and rng.random() < 0.8:
            kind = "laplace"
        return "non_private" if rng.random() < 0.01 else kind

    def _whole(self, body: Json) -> Json:
        """With what a part may not have: a count, a relation, a group, a claim, a sample."""
        rng, kind, p = self.rng, body["kind"], self.rng.random()
        if p < 0.3:
            body["count"] = rng.choice([1, 2, 2, 2, 3, 3, 5, 40])
        if self.private and rng.random() < 0.8:
            body["neighbouring"] = ADD
        elif rng.random() < 0.15:
            body["neighbouring"] = rng.choice([ADD, ADD, REPLACE, ZERO_OUT, self.relation])
        if rng.random() < 0.08:
            body["group_size"] = rng.choice([1, 2, 3, 7])
        if kind == "declared":
            return body
        if rng.random() < (0.3 if kind == "composed" else 0.12) and kind not in UNSAMPLED:
            body["sampling"] = self._sampling(body.get("neighbouring", self.relation))
        if rng.random() < 0.25:
            body["claimed"] = self._claim(body)
        if rng.random() < 0.05:
            body["sampler"] = {"library": "opendp", "version": rng.choice(["0.13", "0.14"])}
        return body

    def _sampling(self, stated: str) -> Json:
        rng = self.rng
        fits = stated if rng.random() < 0.85 else ADD
        if fits != REPLACE:
            rate, way = amount(log_uniform(rng, 0.001, 1), 2), rng.randrange(6)
            if way == 0:
                return {"allocation": rng.choice([1, 10, 365])}
            if way == 1:
                most = rng.choice([10, 1_100, 12_000])
                return {"truncated": {"rate": rate, "of": 10_000, "at_most": most}}
            return {"poisson": rate}
        of = rng.choice([100, 1_000, 12_345])
        return {"without_replacement": {"sample": rng.randint(1, of), "of": of}}

    def _claim(self, body: Json) -> Json:
        """About what one invocation costs, by the rough measure of ``rough``."""
        rng, rough = self.rng, _rough(body) or self.typical
        factor = rng.choice([1, 1, 1.00003, 0.99997, 1.4, 2, 0.6])
        claim = {"epsilon": amount(rough * factor, 7)}
        if "delta" in body or rng.random() < 0.2:
            claim["delta"] = rng.choice([str(body.get("delta", "1e-8")), "1e-9", "2e-8"])
        return claim

    def _laplace(self, epsilon: float) -> Json:
        rng = self.rng
        shape = rng.randrange(4)
        if shape == 0:
            return {"sensitivity": amount(epsilon, 1), "scale": "1"}
        if shape == 1:
            return {"sensitivity": {"l1": "2", "l2": "1.5"}, "scale": amount(2 / epsilon)}
        return {"sensitivity": "1", "scale": amount(1 / epsilon, rng.choice([1, 2, 4]))}

    def _discrete_laplace(self, epsilon: float) -> Json:
        whole = self.rng.randint(1, 3)
        bare = self.rng.random() < 0.7
        sensitivity = str(whole) if bare else {"l1": str(whole)}
        return {"sensitivity": sensitivity, "scale": amount(whole / epsilon)}

    def _gaussian(self, epsilon: float) -> Json:
        rng = self.rng
        body: Json = {"sensitivity": "1", "scale": amount(4 / epsilon)}
        if rng.random() < 0.3:
            body["sensitivity"] = {"l2": "1", "l1": "3"}
        if rng.random() < 0.65:
            body["delta"] = amount(10 ** rng.randint(-11, -7), 1)
        return body

    def _discrete_gaussian(self, epsilon: float) -> Json:
        body = self._gaussian(epsilon)
        if isinstance(body["sensitivity"], str):
            body["sensitivity"] = str(self.rng.randint(1, 2))
        return body

    def _trees(self, epsilon: float) -> Json:
        leaves = [self.rng.choice([1, 5, 64, 1_600]) for _ in range(self.rng.randint(1, 2))]
        depth = math.sqrt(max(leaves).bit_length())
        return {"sensitivity": "1", "scale": amount(4 * depth / epsilon), "leaves": leaves}

    def _moves(self, epsilon: float) -> Json:
        rate = self.rng.choice(["0.01", "0.1", "0.5"])
        stay = f"{1 - float(rate):.2f}"
        moves = [{"by": "0", "chance": stay}, {"by": "1", "chance": rate}]
        return {"scale": amount(4 / epsilon), "moves": moves}

    def _tuning(self, epsilon: float) -> Json:
        rng = self.rng
        runs = rng.choice([{}, {"shape": "0"}, {"shape": "2.5"}, {"runs": "poisson"}])
        made = rng.choice([self._laplace, self._gaussian])
        kind = "laplace" if made == self._laplace else "gaussian"
        run = {"kind": kind} | made(epsilon / 4)
        return {"mechanism": run, "mean": rng.choice(["1", "3", "20"])} | runs

    def _selection(self, epsilon: float) -> Json:
        body: Json = {"sensitivity": "1", "scale": amount(2 / epsilon)}
        if self.rng.random() < (0.06 if self.relation == REPLACE else 0.25):
            body["monotonic"] = True
        return body

    def _response(self, epsilon: float) -> Json:
        categories = self.rng.randint(2, 20)
        growth = math.expm1(epsilon)
        body: Json = {"categories": categories} if categories > 2 else {}
        if self.rng.random() < 0.5:
            return body | {"truth_probability": amount(growth / (categories + growth))}
        return body | {"theta": amount((1 + growth) / (categories + growth), 4)}

    def _unary(self, epsilon: float) -> Json:
        rng = self.rng
        low = rng.randint(10, 80) / 100
        odds = low / (1 - low) * math.exp(epsilon)
        body: Json = {"p": amount(odds / (1 + odds) + 1e-3, 4), "q": amount(low, 2)}
        if rng.random() < 0.3:
            body |= {"memoised": amount(rng.uniform(0.3, 0.9), 2), "hashes": rng.randint(1, 2)}
            if rng.random() < 0.5:
                body["reports"] = rng.choice([2, 30, 365])
        return body

    def session(self, epsilon: float) -> Json:
        """A sparse vector session; some are broken."""
        return {"kind": "sparse_vector"} | self._sparse_vector(epsilon)

    def _sparse_vector(self, epsilon: float) -> Json:
        rng = self.rng
        most = rng.choice([1, 2, 3, 5, 10])
        body: Json = {
            "sensitivity": "1",
            "threshold_scale": amount(3 / epsilon),
            "comparison_scale": amount(4 * most / epsilon),
            "max_positives": most,
        }
        if rng.random() < 0.25:
            body |= {"releases": "fresh_noisy_answer", "answer_scale": amount(6 * most / epsilon)}
        if rng.random() < (0.05 if self.relation == REPLACE else 0.2):
            body["monotonic"] = True
        if rng.random() < 0.06:
            broken: tuple[Json, ...] = (
                {"threshold_scale": "0"},
                {"comparison_scale": "0"},
                {"max_positives": None},
                {"releases": "noisy_comparison", "answer_scale": None},
            )
            body |= rng.choice(broken)
        return body

    def _part(self, epsilon: float) -> Json:
        kinds = [kind for kind in self.simple if kind not in LOCAL or self.rng.random() < 0.3]
        kind = self.rng.choice(kinds * 3 + ["composed"])
        made = (self.simple | self.compound)[kind](epsilon)
        return {"kind": kind} | made

    def _composed(self, epsilon: float) -> Json:
        n = self.rng.randint(1, 3)
        parts = [self._part(epsilon / n / 2) for _ in range(n)]
        if self.rng.random() < 0.4:
            parts[0]["count"] = 2
        return {"mechanisms": parts}

    def _aggregated(self, epsilon: float) -> Json:
        body: Json = {"aggregator": {"kind": "laplace"} | self._laplace(epsilon / 2)}
        if self.rng.random() < 0.4:
            body["blocks_per_unit"] = self.rng.randint(2, 3)
        return body

    def _proposed(self, epsilon: float) -> Json:
        scale = 2 / epsilon
        threshold = amount(scale * self.rng.uniform(8, 25))
        release = self._part(epsilon / 2)
        return {"distance_scale": amount(scale), "threshold": threshold, "release": release}

    def _weights(self, epsilon: float) -> Json:
        rng = self.rng
        if rng.random() < 0.5:
            session = self.session(epsilon)
            session |= {"releases": "fresh_noisy_answer", "answer_scale": amount(9 / epsilon)}
            return {"updates": session}
        rounds = rng.randint(1, 4)
        choose = {"kind": "exponential"} | self._selection(epsilon / rounds / 2)
        measure = {"kind": "laplace"} | self._laplace(epsilon / rounds / 2)
        return {"rounds": rounds, "selection": choose, "measurement": measure}

    def _boosting(self, epsilon: float) -> Json:
        rounds, draws = self.rng.randint(1, 3), self.rng.randint(1, 4)
        draw = {"kind": "exponential"} | self._selection(epsilon / rounds / draws / 2)
        base = {"kind": "laplace"} | self._laplace(epsilon / rounds / 2)
        if self.rng.random() < 0.3:
            base = {"kind": "declared", "epsilon": amount(epsilon / rounds / 2), "delta": "1e-10"}
        return {"rounds": rounds, "draws": draws, "draw": draw, "base": base}

    def _holdout(self, epsilon: float) -> Json:
        budget = self.rng.randint(1, 4)
        scale = amount(5 * budget / epsilon / 1_000)
        scales = dict.fromkeys(("threshold_scale", "comparison_scale", "answer_scale"), scale)
        return {"sensitivity": "0.001", "budget": budget} | scales

    def _plan(self, epsilon: float) -> Json:
        return {**self.rng.choice(PLANS)}

    def _declared(self, epsilon: float) -> Json:
        rng = self.rng
        match rng.randrange(6):
            case 0:
                return {"epsilon": amount(epsilon, 2)}
            case 3:
                return {"mu": amount(epsilon / 4)}
            case 4:
                return {"rho": amount(epsilon**2 / 8), "delta": "1e-10"}
            case 1:
                delta = amount(10 ** rng.randint(-10, -6), 1)
                return {"epsilon": amount(epsilon, 2), "delta": delta}
            case 2:
                return {"rho": amount(epsilon**2 / 8)}
        orders = sorted(rng.sample([2, 4, 8, 16, 32, 64, 256, 4096], rng.randint(1, 3)))
        return {"renyi": {str(order): amount(epsilon**2 * order / 8) for order in orders}}


def _rough(body: Json) -> float | None:
    """What one invocation of some kinds costs under the relation it is stated in."""
    sensitivity: Any
    sensitivity = body.get("sensitivity")
    if body["kind"] in ("laplace", "discrete_laplace"):
        l1 = sensitivity["l1"] if isinstance(sensitivity, dict) else sensitivity
        return float(l1) / float(body["scale"])
    if body["kind"] in ("exponential", "permute_and_flip"):
        return 2 * float(sensitivity) / float(body["scale"])
    if body["kind"] == "gaussian":
        l2 = sensitivity["l2"] if isinstance(sensitivity, dict) else sensitivity
        return _normal(float(l2) / float(body["scale"]), float(body.get("delta", "1e-8")))
    return None


@lru_cache(maxsize=4096)
def _normal(mu: float, delta: float) -> float:
    """About the epsilon of normal noise (Balle and Wang 2018, Theorem 8)."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    low, high = 0.0, mu * mu / 2 + mu * 12 + 1
    for _ in range(100):
        middle = (low + high) / 2
        lost = tail(middle / mu - mu / 2) - math.exp(middle) * tail(middle / mu + mu / 2)
        low, high = (middle, high) if lost > delta else (low, middle)
    return high
