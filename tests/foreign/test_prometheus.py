"""Prometheus itself reads the service, and carries out the alert rules."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import World, ask, laplace

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
ACCOUNT = '{instance="i", population="p", rule="a", dataset="d", unit="", client="", purpose=""}'
SECONDS = 60


def program(name: str) -> str:
    """The path of a program of Prometheus, of the folder that ACCOUNTANT_TEST_PROMETHEUS names or
    of the system; skips where there is none.
    """
    where = os.environ.get("ACCOUNTANT_TEST_PROMETHEUS")
    found = shutil.which(name, path=where)
    if found is None:
        pytest.skip(f"{name} is not here; Debian has it in the package prometheus")
    return found


def always(series: str, value: Any) -> dict[str, str]:
    """A series that has one value for two days."""
    return {"series": series, "values": f"{value}x2880"}


def fires(expected: str, *series: dict[str, str], after: str = "1h") -> dict[str, Any]:
    """A case in which an alert fires, and no other is asked about."""
    return {
        "interval": "1m",
        "input_series": list(series),
        "promql_expr_test": [
            {
                "expr": "count by (alertname) "
                f'(ALERTS{{alertname="{expected}", alertstate="firing"}})',
                "eval_time": after,
                "exp_samples": [{"labels": f'{{alertname="{expected}"}}', "value": 1}],
            }
        ],
    }


def quiet(*series: dict[str, str]) -> dict[str, Any]:
    """A case in which nothing fires after a day."""
    question = {"expr": "count(ALERTS)", "eval_time": "26h", "exp_samples": []}
    return {"interval": "1m", "input_series": list(series), "promql_expr_test": [question]}


def account(**values: Any) -> list[dict[str, str]]:
    """The series of one account."""
    names = {"epsilon": 1} | {f"{name}_epsilon": v for name, v in values.items() if name != "void"}
    names |= {"void": values.get("void", 0)}
    return [always(f"accountant_limit_{name}{ACCOUNT}", value) for name, value in names.items()]


def ledger(events: int, published: int | None, at: int) -> list[dict[str, str]]:
    """The series of one ledger, whose head of some events was published at a second."""
    where = 'instance="i", population="p"'
    found = [always(f"accountant_ledger_events{{{where}}}", events)]
    if published is not None:
        kind = f'{{{where}, kind="published"}}'
        found.append(always(f"accountant_checkpoint_events{kind}", published))
        found.append(always(f"accountant_checkpoint_timestamp_seconds{kind}", at))
    return found


CASES = [
    fires("AccountantDown", always('up{job="accountant", instance="i"}', 0)),
    fires("AccountantLedgerUnreadable", always('accountant_ledger_readable{population="p"}', 0)),
    fires("AccountantClockInDoubt", always("accountant_clock_in_doubt", 1)),
    fires("AccountantQueueLong", always('accountant_queue_commands{population="p"}', 1001)),
    fires("AccountantGuaranteeVoid", *account(remaining=0, void=1)),
    fires("AccountantBudgetUsedUp", *account(remaining=0)),
    fires("AccountantBudgetNearlyUsedUp", *account(remaining=0.1)),
    fires(
        "AccountantBudgetEndsSoon",
        always(f"accountant_limit_epsilon{ACCOUNT}", 1),
        {"series": f"accountant_limit_remaining_epsilon{ACCOUNT}", "values": "1-0.0002x2880"},
        after="26h",
    ),
    fires("AccountantPublicationStopped", always("accountant_publication_stopped", 1)),
    fires("AccountantCheckpointOld", *ledger(9, 8, 0)),
    fires("AccountantNeverPublished", *ledger(9, None, 0)),
    fires(
        "AccountantProposalsWait",
        always('accountant_proposals_waiting{population="p"}', 1),
        after="26h",
    ),
    fires(
        "AccountantFails",
        {
            "series": 'accountant_request_duration_seconds_count{status="503", instance="i"}',
            "values": "0+60x2880",
        },
    ),
    fires(
        "AccountantAnswersSlow",
        *(
            {
                "series": "accountant_request_duration_seconds_bucket"
                f'{{call="grants", le="{bound}", instance="i"}}',
                "values": f"0+{each}x2880",
            }
            for bound, each in (("1.0", 10), ("5.0", 100), ("+Inf", 100))
        ),
    ),
    quiet(
        *account(remaining=0.5),
        *ledger(9, 9, 0),
        always('up{job="accountant", instance="i"}', 1),
        always('accountant_ledger_readable{population="p"}', 1),
        always("accountant_clock_in_doubt", 0),
        always("accountant_publication_stopped", 0),
        always('accountant_proposals_waiting{population="p"}', 0),
    ),
]


def test_alerts_fire_where_they_should(tmp_path: Path) -> None:
    """Each alert fires in a case of its own, and none on a service that is well."""
    promtool = program("promtool")
    rules = DEPLOY / "alerts.yaml"
    groups = yaml.safe_load(rules.read_text())["groups"]
    names = {one["alert"] for group in groups for one in group["rules"]}
    asked = [case["promql_expr_test"][0]["expr"] for case in CASES]
    assert all(any(f'"{name}"' in expr for expr in asked) for name in names)
    document = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": CASES}
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(document))
    for words in (["check", "rules", str(rules)], ["test", "rules", str(file)]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_text_is_as_prometheus_wants_it(world: Callable[..., World]) -> None:
    """Promtool finds nothing wrong with names, units and help texts."""
    promtool = program("promtool")
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n")
    made.post("/grants", ask(laplace("0.25")))
    made.publisher.publish("fair")
    text = made.http.get("/metrics", headers=made.auth("auditor")).text
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_prometheus_reads_the_service(world: Callable[..., World], tmp_path: Path) -> None:
    """As the configuration says, with an auditor's key in a file: what it has stored is what is
    left.
    """
    prometheus = program("prometheus")
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n")
    made.post("/grants", ask(laplace("0.25")))
    chosen = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
    [job] = chosen["scrape_configs"]
    (tmp_path / "key").write_text(made.secrets["auditor"])
    job["authorization"]["credentials_file"] = str(tmp_path / "key")
    job["static_configs"] = [{"targets": [f"127.0.0.1:{made.http.port}"]}]
    chosen["global"] = {"scrape_interval": "1s"}
    chosen["rule_files"] = [str(DEPLOY / "alerts.yaml")]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(chosen))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = f"--web.listen-address=127.0.0.1:{port}"
    options = [f"--config.file={tmp_path}/prometheus.yaml", f"--storage.tsdb.path={tmp_path}/db"]
    with subprocess.Popen([prometheus, where, *options], stderr=subprocess.DEVNULL) as running:
        try:
            query = urllib.parse.urlencode({"query": "accountant_limit_remaining_epsilon"})
            found = _asked(f"http://127.0.0.1:{port}/api/v1/query?{query}")
        finally:
            running.terminate()
    assert found["metric"]["rule"] == "a"
    assert found["value"][1] == "0.75"


def _asked(url: str) -> Any:
    """The first result of a query, once there is one."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 (of this machine)
                if results := json.load(answer)["data"]["result"]:
                    return results[0]
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("Prometheus has stored nothing")
