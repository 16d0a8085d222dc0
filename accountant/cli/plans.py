"""What a folder would change at a service, step by step, and the calls that do it.

Nothing is ever deleted: what is registered and not in the folder stays, and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.budget.decide.adopting import divided_anew
from accountant.budget.errors import Invalid
from accountant.budget.policy import Policy
from accountant.cli.folder import DatasetFile, PolicyFile, PopulationFile, Stated, in_order
from accountant.client import Registrar
from accountant.client.errors import Body
from accountant.reporting.policy_diff import differences

_TERMS: Final = "privacy_unit", "neighbouring", "membership"


@dataclass(frozen=True)
class Step:
    """One change: in words, with what it differs in, and why it takes a second person, as far as
    that is known before the service decides. ``waits`` is a proposal of it that is there already.
    """

    population: str
    what: str
    do: Callable[[Registrar], Body]
    lines: tuple[str, ...] = ()
    two: str = ""
    waits: Body | None = None


@dataclass
class Plan:
    """The steps in their order, what is left as it is, and what can never become so."""

    steps: list[Step] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def plan(
    stated: Stated, there: Mapping[str, Body | None], open_: Mapping[str, Sequence[Body]]
) -> Plan:
    """Return what would change. ``there``: each population as the service shows it, None where it
    has none; ``open_``: its proposals that can be confirmed. Raises Invalid for what cannot be.
    """
    made = Plan()
    for name in stated.names:
        now, proposals = there[name], open_[name]
        people = stated.populations.get(name)
        if people is not None:
            _population(made, name, people, now)
        elif now is None:
            made.wrong.append(
                f"{name}: the service has no such population: add populations/{name}.yaml, or "
                "correct the name"
            )
        known = {one["id"]: one for one in now["datasets"]} if now else {}
        wanted = stated.datasets.get(name, {})
        for dataset in in_order(wanted):
            _dataset(made, name, dataset, wanted[dataset], known.get(dataset), proposals)
        if left := sorted(known.keys() - wanted.keys()) if wanted else []:
            made.stays.append(f"{name}: {', '.join(left)} stay registered, without a file")
        if name in stated.policies:
            _policy(made, name, stated.policies[name], now, proposals)
    if made.wrong:
        made.wrong.append("nothing was done: correct the files")
        raise Invalid("bad-folder", "\n".join(made.wrong))
    return made


def _population(made: Plan, name: str, people: PopulationFile, now: Body | None) -> None:
    stated = people.model_dump(mode="json", exclude_none=True)
    terms = {term: str(stated[term]) for term in _TERMS}
    if now is None:
        new = [f"{term}: {value}" for term, value in terms.items()]
        new += [f"{one}: {len(values)} values" for one, values in people.dimensions.items()]
        new += [f"unit {one}" for one in people.units]
        more = {"dimensions": people.dimensions, "fixed": people.fixed or None}
        made.steps.append(
            _registering(name, "register the population", terms, more, stated, _plus(new))
        )
        return
    differ = [f"{term} {now[term]}" for term in _TERMS if now[term] != terms[term]]
    if now["dimensions"].keys() != people.dimensions.keys():
        differ.append(f"the dimensions {', '.join(now['dimensions']) or 'none'}")
    units = now.get("units", {})
    differ += [
        f"another unit {one}" for one in units if stated["units"].get(one, units[one]) != units[one]
    ]
    if differ:
        made.wrong.append(
            f"{name}: it is registered with {'; '.join(differ)}, and that never changes: write the "
            f"file so, or register another population"
        )
        return
    values, lines = dict[str, list[str]](), list[str]()
    for one, there in now["dimensions"].items():
        known, wanted = set(there), people.dimensions[one]
        new = [value for value in wanted if value not in known]
        values[one] = [*there, *new]
        lines += _plus([f"{one}: {_listed(new)}"] if new else [])
        if gone := known - set(wanted):
            made.stays.append(f"{name}: {one} keeps {_listed(sorted(gone))}, which the file lacks")
    lines += _plus(f"unit {one}" for one in stated["units"] if one not in units)
    if lines:
        fixed = {one: why for one, why in people.fixed.items() if one not in now["fixed"]}
        more = {"dimensions": values, "fixed": fixed or None}
        made.steps.append(_registering(name, "extend the population", terms, more, stated, lines))


def _registering(
    name: str,
    what: str,
    terms: Mapping[str, str],
    more: Mapping[str, Any],
    stated: Mapping[str, Any],
    lines: Sequence[str],
) -> Step:
    arguments = {**terms, **more, "units": stated["units"] or None}
    return Step(name, what, lambda registrar: registrar.register(**arguments), tuple(lines))


def _dataset(
    made: Plan,
    population: str,
    name: str,
    wanted: DatasetFile,
    now: Body | None,
    proposals: Sequence[Body],
) -> None:
    stated = wanted.model_dump(mode="json", exclude_none=True)
    for place in ("namespace", "name"):
        if now is not None and now[place] != stated[place]:
            made.wrong.append(
                f"{population}: dataset {name} is registered with the {place} {now[place]!r}, and "
                f"the file says {stated[place]!r}: an id stays what it is; name the file otherwise"
            )
            return
    lines = []
    for key, value in stated.items():
        if key == "closes":  # which is said of what is registered, and not kept
            continue
        before = (now or {}).get(key) or None
        if (before or None) != (value or None):
            lines += [f"- {key}: {_shown(before)}"] * (before is not None)
            lines.append(f"+ {key}: {_shown(value)}")
    if not lines:
        return
    waits = next((one for one in proposals if _is_of(one, "register_dataset", name, stated)), None)
    two = "other populations have the same data" if wanted.also else ""
    what = f"{'register' if now is None else 'change'} dataset {name}"
    # What a file leaves out stays; only labels do so by themselves.
    kept = {key: now[key] for key in ("owner", "parents", "also") if now and now.get(key)}
    fields = kept | stated
    made.steps.append(
        Step(
            population,
            what,
            lambda registrar: registrar.dataset(name, **fields),
            tuple(lines),
            two,
            waits,
        )
    )


def _is_of(proposal: Body, kind: str, name: str, stated: Body) -> bool:
    """Return whether an open proposal is of this dataset as it is stated."""
    change = proposal["change"]
    same = all((change.get(key) or None) == (value or None) for key, value in stated.items())
    return change["type"] == kind and change["id"] == name and same


def _policy(
    made: Plan, name: str, wanted: PolicyFile, now: Body | None, proposals: Sequence[Body]
) -> None:
    there = now.get("policy") if now else None
    if there is not None and there["digest"] == wanted.digest:
        return
    lines: list[str] = []
    if there is None:
        lines, two = [f"+ {rule.id}" for rule in wanted.policy.rules], "it is the first policy"
    else:
        old = Policy.model_validate({k: v for k, v in there.items() if k != "digest"})
        if old.to_json() == wanted.policy.to_json():
            return  # another text that says the same is not adopted anew
        found = list(differences(old, wanted.policy))
        for one in found:
            lines.append(f"{one.rule}: {one.what}{', which loosens' if one.loosens else ''}")
            lines += [f"  - {one.before}"] * (one.before is not None)
            lines += [f"  + {one.after}"] * (one.after is not None)
        anew = divided_anew(old, wanted.policy)
        lines += [f"{text}, which loosens" for text in anew]
        two = "it loosens" if anew or any(one.loosens for one in found) else ""
        if old.publication != wanted.policy.publication:
            lines.append("the witnesses, or how many have to agree, differ")
        if old.order != wanted.policy.order:
            lines.append(f"those who wait are admitted by {wanted.policy.order}, not {old.order}")
        lines = lines or ["the rules are in another order"]
    waits = next(
        (one for one in proposals if one["change"].get("source_digest") == wanted.digest), None
    )
    what = f"adopt policy {wanted.policy.policy}"
    made.steps.append(
        Step(name, what, lambda one: one.policy(wanted.text), tuple(lines), two, waits)
    )


def _plus(lines: Sequence[str] | Iterator[str]) -> list[str]:
    return [f"+ {line}" for line in lines]


def _listed(values: Sequence[str]) -> str:
    """Return some values, and how many more there are."""
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return ", ".join(values[:10]) + more


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {one}" for key, one in value.items()) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
