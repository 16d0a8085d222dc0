"""The calls that register populations and datasets, and adopt policies."""

from __future__ import annotations

from collections.abc import (
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import (
    replace,
)
from typing import (
    Annotated,
    Any,
    cast,
)

from fastapi import Query
from fastapi.responses import JSONResponse

from accountant.api.access import (
    Administrator,
    Body,
    Call,
    DatasetName,
    DimensionPath,
    Name,
    Raw,
    Reader,
    TheService,
    of_a_population,
)
from accountant.api.answers import proposed_by
from accountant.api.models import reading as models
from accountant.api.requests import (
    ask,
    narrowed_to,
)
from accountant.auth.keys import Key
from accountant.budget.commands import (
    PROPOSAL_DAYS,
    AdoptPolicy,
    AppendValues,
    Envelope,
    RegisterDataset,
    RegisterPopulation,
    stated_of,
)
from accountant.budget.decide.adopting import (
    not_reset,
)
from accountant.budget.depletion import told_of
from accountant.budget.errors import Invalid
from accountant.budget.facts import opened_by
from accountant.budget.policy import Policy
from accountant.budget.population.population import Dataset
from accountant.budget.state import State
from accountant.budget.typical import kept_orders
from accountant.runtime.service import Service

router = of_a_population("registering")


@router.put("")
@Call(models.Population, RegisterPopulation, topics="population proposing", proposes=True)
def register_population(
    population: Name, key: Administrator, body: Body, service: TheService
) -> JSONResponse:
    """Register a population, append values to its dimensions, or state further units.

    A population is a set of people: one privacy unit, one neighbouring relation, and unchanging
    public attributes that put each unit in exactly one cell for life.

    With `attested_new`, and once something was charged, an extension is only proposed: a second
    person has to confirm that the members of the new values owe nothing of it.
    """
    answer = service.execute(population, ask(RegisterPopulation, key, body, None))
    if (proposed := proposed_by(answer)) is not None:
        return proposed
    return JSONResponse(_population(service.state(population)))


@router.get("")
@Call(models.PopulationInForce)
def show_population(population: Name, key: Reader, service: TheService) -> JSONResponse:
    """Show a population with its datasets and the policy in force. A pipeline sees the rules that
    concern it, without names of other clients, and no other populations.
    """
    state, client = service.state(population), narrowed_to(key)
    adopted = state.adopted
    policy = adopted.policy if adopted else None
    elsewhere = _elsewhere(service, population, key) if client is None else {}
    data: Iterable[Dataset] = state.datasets.values()
    if client is not None:
        data = [replace(one, also=(), confirmed_by=None) for one in data]
        policy = policy.seen_by(client) if policy else None
    in_force: models.PopulationInForce = {
        **_population(state),
        "datasets": [_dataset(one, elsewhere) for one in data],
        "policy": _policy(policy, adopted.digest) if policy and adopted else None,
    }
    return JSONResponse(in_force)


@router.post("/dimensions/{dimension}/values")
@Call(
    models.Appended,
    AppendValues,
    within="dimension",
    topics="population proposing",
    proposes=True,
)
def append_values(
    population: Name, dimension: DimensionPath, key: Administrator, body: Body, service: TheService
) -> JSONResponse:
    """Append values to a dimension, in as many requests as it takes.

    `first` is the place of the first of them, so that a request may be repeated, and an upload that
    was interrupted goes on where it ended, or from its beginning: values that are there already
    change nothing. Values count as soon as they are there. With `attested_new`, and once something
    was charged, they are only proposed.
    """
    asked = ask(AppendValues, key, body, None, dimension=dimension)
    if (proposed := proposed_by(service.execute(population, asked))) is not None:
        return proposed
    people = service.state(population).people()
    appended: models.Appended = {
        "population": people.name,
        "dimension": dimension,
        "values": len(dict(people.dimensions)[dimension]),
        "cells": people.cells,
    }
    return JSONResponse(appended)


def _population(state: State) -> models.Population:
    people = state.people()
    found: models.Population = {
        "population": people.name,
        "privacy_unit": people.privacy_unit,
        "neighbouring": people.relation.value,
        "membership": people.membership.value,
        "dimensions": {name: list(values) for name, values in people.dimensions},
        "fixed": dict(people.fixed),
        "cells": people.cells,
        "sequence": state.last,
    }
    if people.units:
        stated = {unit.name: stated_of(unit, people.privacy_unit) for unit in people.units}
        found["units"] = {k: v.model_dump(exclude_none=True) for k, v in stated.items()}
    return found


def _policy(policy: Policy, digest: str) -> models.PolicyInForce:
    return cast(models.PolicyInForce, {"digest": digest, **policy.to_json()})


@router.put("/datasets/{dataset}")
@Call(models.Dataset, RegisterDataset, within="id", topics="dataset proposing", proposes=True)
def register_dataset(
    population: Name,
    dataset: DatasetName,
    key: Administrator,
    body: Body,
    service: TheService,
) -> JSONResponse:
    """Register a dataset about the population under a short id.

    The same data are the same budget: data that another population has, in whatever spelling, are
    registered only if `also` lists all its other uses, and are proposed: a second person has to
    confirm. So is a change of owner or labels that takes the dataset out of the scope of a rule
    that blocks, and of parents whose charges would count less.
    """
    command = ask(RegisterDataset, key, body, None, id=dataset)
    answer = service.execute(population, command)
    if (proposed := proposed_by(answer)) is not None:
        return proposed
    registered = service.state(population).datasets[dataset]
    return JSONResponse(_dataset(registered, _elsewhere(service, population, key)))


def _elsewhere(service: Service, population: str, key: Key) -> dict[str, list[str]]:
    """Return where else the datasets are used, of the populations that the key reaches."""
    found = service.elsewhere(population)
    return {
        dataset: [use for use in uses if key.reaches(use.partition("/")[0])]
        for dataset, uses in found.items()
    }


def _dataset(one: Dataset, elsewhere: Mapping[str, Sequence[str]]) -> models.Dataset:
    also = sorted({*one.also, *elsewhere.get(one.id, ())})
    found: models.Dataset = {
        "id": one.id,
        "namespace": one.namespace,
        "name": one.name,
        "owner": one.owner,
        "parents": list(one.parents),
    }
    if one.labels:
        found["labels"] = dict(one.labels)
    if also:
        found["also"] = also
    if one.confirmed_by is not None:
        found["confirmed_by"] = one.confirmed_by
    if one.took_over:
        found["charged_with"] = sorted({name for each in one.took_over for name in each.others})
    if one.uncharged:
        found["uncharged"] = list(one.uncharged)
    return found


@router.put("/policy")
@Call(models.AdoptedPolicy, Policy, topics="policy proposing", proposes=True)
def adopt_policy(
    population: Name,
    key: Administrator,
    body: Raw,
    service: TheService,
    closes: Annotated[
        list[Annotated[str, Query(max_length=64)]] | None,
        Query(max_length=200, description="limit rules that may begin closed for good"),
    ] = None,
    proposal_days: Annotated[
        int, Query(ge=1, le=30, description="days that it can be confirmed, if it is proposed")
    ] = PROPOSAL_DAYS,
) -> JSONResponse:
    """Adopt a policy file (YAML or JSON). The first, and one that loosens, are only proposed.

    A limit in which nothing would fit any more, because of what was used before, has to be named in
    `closes`. A changed limit keeps its former Renyi orders; `kept_orders` says what that costs.
    """
    try:
        from accountant.budget.policy_file import parse_policy  # noqa: PLC0415 YAML, seldom read

        policy, digest = parse_policy(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Invalid("malformed-policy", "the policy is not UTF-8 text") from None
    command = AdoptPolicy(
        policy=policy.to_json(),
        source_digest=digest,
        closes=closes or [],
        proposal_days=proposal_days,
    )
    answer = service.execute(population, Envelope(key.name, command))
    if (proposed := proposed_by(answer)) is not None:
        return proposed
    changed = answer.events[0].body if answer.events else {}
    state, opened = service.state(population), opened_by(changed)
    relation = state.people().relation
    kept = kept_orders(answer.events[0], relation) if answer.events else []
    adopted: dict[str, Any] = {
        **_policy(policy, digest),
        "adopted": bool(answer.events),
        "opens_epoch": opened,
        "kept_orders": kept,
        **told_of(policy),
    }
    if goes_on := not_reset(state, opened):
        adopted["not_reset"] = goes_on
    return JSONResponse(cast(models.AdoptedPolicy, adopted))
