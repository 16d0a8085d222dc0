"""Alert rules and the board use metrics and labels that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from accountant.reporting.metrics import METRICS
from accountant.runtime.measures import CALLS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
BOARD = DEPLOY / "grafana" / "accountant.json"
_METRIC = re.compile(r"\b(accountant_\w+)(?:\{([^}]*)\})?")
_OF_THE_SCRAPE = {"instance", "job", "le"}


def alerts() -> dict[str, dict[str, object]]:
    """The alerts by name."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return {one["alert"]: one for group in groups for one in group["rules"]}


def expressions() -> dict[str, str]:
    """Every expression of the alerts and of the board, by where it stands."""
    found = {name: str(one["expr"]) for name, one in alerts().items()}
    board = json.loads(BOARD.read_text())
    panels = {panel["title"]: panel["targets"] for panel in board["panels"]}
    found |= {name: one["expr"] for name, targets in panels.items() for one in targets}
    [variable] = [v for v in board["templating"]["list"] if v["name"] == "population"]
    return found | {"variable": variable["query"]["query"]}


@pytest.mark.parametrize("place", expressions())
def test_expressions_use_metrics_that_there_are(place: str) -> None:
    """A metric that is misspelt, or a label that it does not have, would never fire or show."""
    expression = expressions()[place]
    assert "up{" in expression or "accountant_" in expression
    for name, selected in _METRIC.findall(expression):
        base = name if name in METRICS else re.sub(r"_(bucket|count|sum)$", "", name)
        kind, _, labels = METRICS[base]
        assert (base != name) == (kind == "histogram"), name
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selected):
            assert label in {*labels, *_OF_THE_SCRAPE}, (name, label)
    known = {label for one in METRICS.values() for label in one.labels} | _OF_THE_SCRAPE
    for listed in re.findall(r"\b(?:by|on|ignoring) ?\(([^)]*)\)", expression):
        assert set(re.split(r",\s*", listed)) <= known, listed
    for calls in re.findall(r'call=~"([^"]*)"', expression):
        assert set(calls.split("|")) <= CALLS


@pytest.mark.parametrize("name", alerts())
def test_alerts_say_what_is_wrong_and_what_to_do(name: str) -> None:
    """Each alert has a severity, a summary and an action."""
    one = alerts()[name]
    assert {"severity"} == set(one["labels"])  # type: ignore[call-overload]
    assert {"summary", "action"} == set(one["annotations"])  # type: ignore[call-overload]


def test_amounts_and_doubts_have_alerts() -> None:
    """Whatever voids a promise or stops the service has an alert."""
    used = " ".join(str(one["expr"]) for one in alerts().values())
    for name in (
        "limit_void", "limit_remaining_epsilon", "clock_in_doubt", "ledger_readable",
        "publication_stopped", "checkpoint_timestamp_seconds", "proposals_waiting",
        "queue_commands",
    ):  # fmt: skip
        assert f"accountant_{name}" in used


def test_panels_do_not_cover_each_other() -> None:
    """Each panel of the board has a place of its own on the grid of 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        at = panel["gridPos"]
        place = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not place & taken, panel["title"]
        taken |= place
