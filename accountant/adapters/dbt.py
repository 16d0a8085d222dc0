"""dbt; cannot see the SQL: a model draws what its meta says, or the ledger is wrong.

::

    models:
      - name: weekly_counts
        config:
          materialized: table
          meta:
            accountant:
              dataset: visits
              purpose: weekly dashboard
              mechanisms: [{kind: laplace, sensitivity: 1, scale: 10}]

    from accountant.adapters.dbt import granted

    subprocess.run(["dbt", "parse"], check=True)
    with granted(ledger, "target", run=run_id, select=["weekly_counts"]):
        subprocess.run(["dbt", "run", "--select", "weekly_counts"], check=True)

One grant a model is asked for before dbt runs; if one is refused, none is left and nothing runs.
Afterwards ``run_results.json`` says which models dbt skipped: those are released, and all others
are committed, also those that failed. Two things look like a skip and are none: an interrupted dbt
leaves out the models that it was running, and one with ``--fail-fast`` calls them skipped.

``run`` is the name of the orchestrator's run, which stays when the run is tried again; dbt's own
invocation id does not. A model that an earlier try ran meets MayHaveRun (see ``tasks.py``): leave
it out with ``select``, as ``dbt retry`` does.

This module reads dbt's artifacts and does not import dbt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from accountant.adapters.libraries import Fields
from accountant.adapters.tasks import Work, ask
from accountant.client import Client, Grant, Mechanism, mechanism
from accountant.client.calls import Datasets

META: Final = "accountant"
"""The key of a model's meta that this module reads."""
_TEXTS: Final = ("purpose", "justification", "allotment")
_FIELDS: Final = {"dataset", "mechanisms", "subjects", "ttl_seconds", *_TEXTS}
_ANEW: Final = ("view", "ephemeral")  # their SQL runs whenever somebody reads them
_UNREADABLE: Final = (OSError, ValueError, LookupError, TypeError)


class Undeclared(Exception):
    """Models that ran without a grant of what they drew. They are recorded."""


class Model(NamedTuple):
    """What a model says of itself."""

    id: str
    name: str
    dataset: Datasets
    mechanisms: Sequence[Mechanism]
    about: Fields


def models(target: str | PathLike[str], select: Collection[str] | None = None) -> list[Model]:
    """Return the models of ``manifest.json`` that draw noise: all, or those that ``select`` names.
    Raise ValueError for one that says too little, or draws anew whenever it is read.
    """
    nodes = _read(target, "manifest.json")["nodes"]
    found = [
        _model(unique_id, node)
        for unique_id, node in sorted(nodes.items())
        if _meta(node) is not None
        and (select is None or node["name"] in select or unique_id in select)
    ]
    missing = set(select or ()) - {name for model in found for name in (model.id, model.name)}
    if missing:
        raise ValueError(
            f"no model {', '.join(sorted(missing))} with meta {META} is in the manifest: run dbt "
            "parse, or correct the name"
        )
    return found


@contextmanager
def granted(
    ledger: Client,
    target: str | PathLike[str],
    *,
    run: str,
    select: Collection[str] | None = None,
    again: int = 0,
) -> Iterator[dict[str, Grant]]:
    """Ask for a grant for each model of ``target`` that draws noise, by id; settle them by what
    dbt says it ran. Raise Refused, MayHaveRun, and Undeclared for what dbt ran beyond them.
    """
    planned = models(target, select)
    before = _invocation(target)
    with ExitStack() as stack:
        grants = {}
        for model in planned:
            work = Work("dbt", (run, model.id), again=again)
            asked = ask(ledger, work, model.dataset, model.mechanisms, tracked=True, **model.about)
            grants[model.id] = stack.enter_context(asked)
        try:
            yield grants
        finally:
            ran, skipped = _outcome(target, before)
            for unique_id, grant in grants.items():
                if unique_id not in skipped:
                    grant.use()
            if ran:
                _check(ledger, target, planned, ran)


def _check(
    ledger: Client, target: str | PathLike[str], planned: Sequence[Model], ran: Collection[str]
) -> None:
    """Record what ran otherwise than planned: dbt reads the project anew when it runs."""
    before = {model.id: model.mechanisms for model in planned}
    nodes = _read(target, "manifest.json")["nodes"]
    now = [_model(each, nodes[each]) for each in sorted(ran) if _meta(nodes.get(each)) is not None]
    beyond = [model for model in now if before.get(model.id) != model.mechanisms]
    for model in beyond:
        about = {name: value for name, value in model.about.items() if name != "ttl_seconds"}
        ledger.record(model.dataset, model.mechanisms, **cast(Any, about))
    if beyond:
        raise Undeclared(
            f"{', '.join(model.name for model in beyond)} ran without a grant of what they drew; "
            "it is recorded. Run dbt parse before, and select the models that dbt will run"
        )


def _meta(node: Mapping[str, Any] | None) -> Any:
    if node is None:
        return None
    return (node.get("config", {}).get("meta") or node.get("meta") or {}).get(META)


def _model(unique_id: str, node: Mapping[str, Any]) -> Model:
    said = _meta(node)
    if not isinstance(said, dict) or not said.keys() >= {"dataset", "mechanisms"}:
        raise ValueError(f"{unique_id}: meta {META} needs dataset and mechanisms")
    if unknown := said.keys() - _FIELDS:
        raise ValueError(f"{unique_id}: meta {META} has no field {', '.join(sorted(unknown))}")
    if (how := node.get("config", {}).get("materialized")) in _ANEW:
        raise ValueError(
            f"{unique_id} is materialized as {how}, which draws fresh noise whenever it is read: "
            "make it a table"
        )
    mechanisms = [mechanism(**each) for each in said["mechanisms"]]
    about = {name: said[name] for name in _FIELDS - {"dataset", "mechanisms"} if name in said}
    return Model(unique_id, node["name"], said["dataset"], mechanisms, cast(Fields, about))


def _outcome(target: str | PathLike[str], before: str | None) -> tuple[set[str], set[str]]:
    """Return the ids of what dbt ran, and of what it certainly did not begin. Nothing is certain
    without whole results of a run after ``before``.
    """
    if _invocation(target) == before:
        return set(), set()
    try:
        results = _read(target, "run_results.json")
        skipped = {
            each["unique_id"]: str(each.get("message"))
            for each in results["results"]
            if each["status"] == "skipped"
        }
        ran = {each["unique_id"] for each in results["results"]} - skipped.keys()
    except _UNREADABLE:
        return set(), set()
    if any("fail_fast" in message for message in skipped.values()):
        return ran, set()
    return ran, set(skipped)


def _invocation(target: str | PathLike[str]) -> str | None:
    """Return which invocation of dbt the results are from; None if there are none that are whole:
    a dbt that was killed may have written half of them.
    """
    try:
        return str(_read(target, "run_results.json")["metadata"]["invocation_id"])
    except _UNREADABLE:
        return None


def _read(target: str | PathLike[str], name: str) -> dict[str, Any]:
    return dict(json.loads((Path(target) / name).read_text(encoding="utf-8")))
