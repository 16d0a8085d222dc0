"""Random policies and random changes of them, as policy files."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any, Final

from random_mechanisms import amount, log_uniform

Json = dict[str, Any]
FILTERS: Final = ("basic", "advanced", "zcdp", "renyi", "gdp")
PURPOSES: Final = ("study", "quality report", "planning")
ORDERS: Final = ("1.25", "2", "4.5", "8", "10", "23", "64")
GLOBS: Final = ("*", "*", "*", "health-*", "usage-?", "[hu]*", "health-visits")
KINDS_DENIED: Final = ("non_private", "declared", "plan", "gaussian", "randomized_response")


class Policies:
    """Makes policies whose limits are about ``typical``; all limits under ``gate``, if given."""

    def __init__(self, rng: Random, typical: float, gate: str | None = None) -> None:
        self.rng, self.typical, self.gate = rng, typical, gate
        self.made = 0

    def first(self, *, lenient: bool) -> list[Json]:
        """Rules to begin with; ``lenient``: nothing but limits blocks."""
        rng = self.rng
        rules = [self._limit("a", datasets="*")]
        rules += [self._limit(f"b{i}") for i in range(rng.randint(0, 1))]
        if rng.random() < 0.5:
            rules.append(self._limit("person", across="datasets") | {"datasets": "*"})
        if rng.random() < 0.3:
            rules.append(self._limit("share", per="client"))
        rules += [self._threshold(rules) for _ in range(rng.randint(0, 2))]
        rules += [self._terms(lenient=lenient) for _ in range(rng.randint(0, 2))]
        return rules

    def changed(self, rules: list[Json]) -> list[Json]:
        """The rules after one to three random changes."""
        rules = deepcopy(rules)
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self._change(rules)
        limits = {rule["id"] for rule in rules if "limit" in rule}
        rules = [rule for rule in rules if rule.get("of") in limits | {None}]
        return rules if limits else [self._limit("a", datasets="*"), *rules]

    def raised(self, rules: list[Json], factor: float, *, reset: bool) -> list[Json]:
        """The rules with every limit's epsilon times ``factor``; ``reset``: and begun anew."""
        rules = deepcopy(rules)
        for rule in rules:
            if "limit" in rule:
                self._scale(rule, factor)
                rule.pop("carry", None)
                rule.update({"carry": "none"} if reset else {})
        return rules

    def text(self, rules: list[Json], publication: Json | None = None) -> str:
        """The policy file; flow style, as JSON is read by the same parser."""
        lines = [f"policy: p{self.rng.randint(1, 2)}"]
        if publication:
            lines.append(f"publication: {json.dumps(publication)}")
        return "\n".join([*lines, "rules:", *(f"  - {_flow(rule)}" for rule in rules), ""])

    def _limit(self, name: str, **more: Any) -> Json:
        rng = self.rng
        epsilon = log_uniform(rng, self.typical / 2, self.typical * 2)
        limit = {"epsilon": amount(epsilon, rng.choice([1, 2]))}
        if rng.random() < 0.85:
            exponent = rng.randint(-8, -4)
            limit["delta"] = f"{rng.randint(1, 9)}e{exponent}"
            if rng.random() < 0.5:
                limit["own_delta"] = f"1e{exponent - rng.randint(0, 2)}"
            elif rng.random() < 0.1:
                limit["own_delta"] = limit["delta"]
        rule: Json = {"id": name, "limit": limit}
        if (gate := self.gate or rng.choice([*FILTERS, None])) is not None:
            rule["gate"] = gate
        rule |= self._lines(rule)
        rule |= {"datasets": rng.choice(GLOBS)} | more
        if name != "a" and rng.random() < 0.4:
            rule["action"] = rng.choice(["flag", "flag", "block"])
        if rng.random() < 0.05:
            rule["carry"] = "none"
        return rule

    def _lines(self, rule: Json) -> Json:
        """Renyi orders, or a workload that one is taken for, of some limits that may state them."""
        limit, chance = rule["limit"], self.rng.random()
        split = "delta" in limit and limit["delta"] != limit.get("own_delta")
        if not split or rule.get("gate", "renyi") != "renyi" or chance > 0.4:
            return {}
        if chance > 0.15:
            return {"orders": self.rng.sample(ORDERS, self.rng.randint(1, 3))}
        noise = {"sensitivity": "1", "scale": self.rng.choice(["0.8", "1.1", "40"])}
        sampled = {"kind": "gaussian", "sampling": {"poisson": "0.01"}} | noise
        return {"workload": self.rng.choice([[sampled], [{"kind": "laplace"} | noise, sampled]])}

    def _threshold(self, rules: list[Json]) -> Json:
        limits = [rule["id"] for rule in rules if "limit" in rule]
        share = self.rng.choice(["80%", "50%", "33.3%", "1%", "99.9%", "0.5%", "60%"])
        return {"id": self._name("t"), "of": self.rng.choice(limits), "at": share}

    def _terms(self, *, lenient: bool) -> Json:
        rng = self.rng
        kinds = rng.sample(KINDS_DENIED, rng.randint(1, 2))
        fields = rng.choice([["purpose"], ["justification"], ["purpose", "justification"]])
        rule: Json = rng.choice([
            {"mechanisms": kinds},
            {"require": fields},
            {"purposes": rng.sample(PURPOSES, rng.randint(1, 2))},
        ])  # fmt: skip
        rule = {"id": self._name("r")} | rule
        if rng.random() < 0.5:
            rule["datasets"] = rng.choice(GLOBS)
        if lenient or rng.random() < 0.5:
            rule["action"] = "flag"
        return rule

    def _name(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    def _change(self, rules: list[Json]) -> None:
        rng = self.rng
        limits = [rule for rule in rules if "limit" in rule]
        what = rng.choice([
            "raise", "raise", "lower", "lower", "gate", "scope", "remove", "again", "reset",
            "threshold", "terms", "action", "delta", "order", "any", "glob", "lines",
        ])  # fmt: skip
        rule = rng.choice(limits) if limits else None
        if what == "threshold" and limits:
            rules.append(self._threshold(rules))
        elif what == "terms":
            rules.append(self._terms(lenient=rng.random() < 0.7))
        elif what == "again":
            self._again(rules)
        elif what == "order":
            rng.shuffle(rules)
        elif what in ("any", "remove") and rules:
            del rules[rng.randrange(len(rules))]
        elif rule is not None:
            self._changed_limit(rules, rule, what)

    def _changed_limit(self, rules: list[Json], rule: Json, what: str) -> None:
        rng = self.rng
        match what:
            case "raise":
                self._scale(rule, rng.choice([1.5, 2, 10]))
            case "lower":
                self._scale(rule, rng.choice([0.9, 0.5, 0.1]))
            case "gate":
                rule["gate"] = rng.choice(FILTERS)
                self._drawn_anew(rule)
            case "lines":
                self._drawn_anew(rule)
            case "scope":
                key, value = rng.choice([("across", "datasets"), ("per", "client")])
                rule.pop(key, None) or rule.update({key: value})
            case "glob":
                rule["datasets"] = rng.choice(GLOBS)
            case "reset":
                rule["carry"] = rng.choice(["none", "none", "used"])
            case "action":
                rule["action"] = rng.choice(["flag", "block"])
            case "delta":
                rule["limit"] = self._limit("x")["limit"] | {"epsilon": rule["limit"]["epsilon"]}
                self._drawn_anew(rule)

    def _drawn_anew(self, rule: Json) -> None:
        """Gives the gate other lines, which it may have."""
        for name in ("orders", "workload"):
            rule.pop(name, None)
        rule.update(self._lines(rule))

    def _again(self, rules: list[Json]) -> None:
        """A rule that was there before, or a further one."""
        names = {rule["id"] for rule in rules}
        name = next(
            (name for name in ("a", "b0", "person", "share", "b1") if name not in names), None
        )
        if name is not None:
            more = {"person": {"across": "datasets"}, "share": {"per": "client"}}.get(name, {})
            rules.insert(self.rng.randrange(len(rules) + 1), self._limit(name, **more))

    def _scale(self, rule: Json, factor: float) -> None:
        limit = rule["limit"]
        epsilon = min(max(float(limit["epsilon"]) * factor, 1e-9), 1e6)
        limit["epsilon"] = amount(epsilon, 2)


def _flow(value: Any) -> str:
    """A mapping in flow style; text is quoted where it would not be read as it stands."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    text = str(value)
    return json.dumps(text) if set(text) & set('*[]?{}:,"%') else text
