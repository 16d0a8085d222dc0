"""Every example on a page is run, or checked by what reads such; or the page says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from fences import CHECKS, ROOT, Block, blocks, check_command, commands_of, complaint

COMMAND = re.compile(r"^(accountant|curl|export|make|pip|python3?) .*", re.MULTILINE)
"""A line that is no output of a program."""
ADAPTERS = "tests/adapters/test_{}.py"
RUN: dict[tuple[str, str], tuple[str, ...]] = {
    ("CONTRIBUTING.md", "python"): ("tests/docs/test_contributing.py",),
    ("CONTRIBUTING.md", "yaml"): ("tests/docs/test_contributing.py",),
    ("README.md", "python"): ("tests/client/test_client_docs.py",),
    ("README.md", "sh"): ("tests/docs/test_tutorial.py",),
    ("docs/evidence.md", "json"): ("tests/evidence/test_evidence_docs.py",),
    ("docs/how-to/adapters-sql.md", "python"): (
        ADAPTERS.format("smartnoise"),
        ADAPTERS.format("tumult"),
    ),
    ("docs/how-to/adapters-training.md", "python"): (
        ADAPTERS.format("opacus"),
        ADAPTERS.format("jax_privacy"),
    ),
    ("docs/how-to/adapters.md", "python"): (ADAPTERS.format("adapters_docs"),),
    ("docs/how-to/answer-a-query.md", "python"): ("tests/docs/test_queries_page.py",),
    ("docs/how-to/apply-a-folder.md", "yaml"): ("tests/cli/test_apply.py",),
    ("docs/how-to/ask-from-a-pipeline.md", "python"): ("tests/client/test_client_docs.py",),
    ("docs/how-to/get-alerts.md", "yaml"): ("tests/notifying/test_channels.py",),
    ("docs/how-to/opendp.md", "python"): (ADAPTERS.format("opendp_docs"),),
    ("docs/how-to/operate.md", "yaml"): ("tests/docs/test_examples_on_pages.py",),
    ("docs/how-to/orchestrators.md", "python"): tuple(
        ADAPTERS.format(one) for one in ("airflow", "dagster", "prefect", "dbt")
    ),
    ("docs/how-to/orchestrators.md", "yaml"): (ADAPTERS.format("dbt"),),
    ("docs/how-to/evidence-for-an-auditor.md", "python"): ("tests/docs/test_auditor_page.py",),
    ("docs/how-to/record-after-the-fact.md", "python"): ("tests/client/test_client_docs.py",),
    ("docs/how-to/wait-for-budget.md", "python"): ("tests/docs/test_waiting_page.py",),
    ("docs/how-to/write-a-policy.md", "yaml"): ("tests/cli/test_policy_trials.py",),
    ("docs/reference/fleet.md", "python"): ("tests/fleet/test_fleet_folder.py",),
    ("docs/tutorial/first-answer.md", "python"): ("tests/docs/test_first_answer.py",),
    ("docs/tutorial/first-ledger.md", "sh"): ("tests/docs/test_tutorial.py",),
    ("packaging/client/README.md", "python"): ("tests/client/test_client_docs.py",),
}
"""The files of tests that run all blocks of a language on a page."""


@pytest.mark.parametrize("block", blocks(), ids=lambda block: block.place)
def test_an_example_is_run_or_says_why_not(block: Block) -> None:
    """A block names its language. What can be run is run by a test of its page or read by the code
    that reads such, unless a remark before it says why not.
    """
    assert block.language, f"{block.place}: name its language, or text"
    if block.language == "text":
        shown = COMMAND.search(block.code)
        assert not shown, f"{block.place}: call it sh, for it has {shown and shown[0]}"
        return
    runs = (block.page, block.language) in RUN
    if block.reason is not None:
        assert not runs, f"{block.place} is run, whatever the remark says"
        return
    assert block.language in CHECKS, f"{block.place}: say why it is not run"
    if block.language in ("python", "sh") or not runs:
        assert complaint(block.language, block.code) is None, block.place
    if block.language == "python":
        assert runs, f"{block.place}: run it in a test and name that in RUN, or say why not"


@pytest.mark.parametrize("page", RUN, ids="-".join)
def test_what_runs_a_page_reads_it(page: tuple[str, str]) -> None:
    """A test that is said to run a page is there and names the page; the page has such blocks."""
    name, _ = page
    assert any((one.page, one.language) == page for one in blocks())
    for runner in RUN[page]:
        text = (ROOT / runner).read_text(encoding="utf-8")
        assert Path(name).name in text, f"{runner} does not read {name}"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("yaml", "- {id: a, limit: {epsilom: 3}}"),
        ("yaml", "a: 1"),
        ("json", '{"kind": "laplace", "sensitivity": "1"}'),
        ("json", '{"kind": "laplace", "kind": "laplace", "sensitivity": "1", "scale": "1"}'),
        ("json", '{"dataset": "visits", "mechanisms": [], "wait": "7 days"}'),
        ("http", 'PUT /v1/population/x/datasets/y\n{"namespace": "n", "name": "n"}'),
        ("http", 'PUT /v1/populations/x/datasets/y\n{"namespace": "n", "nome": "n"}'),
        ("sh", "accountant keys make --role admin --name x"),
        ("sh", "accountant keys create --role admin --name x --forever"),
        ("sh", "accountant accounts -p visitors --by"),
        ("sh", "accountant grant --dataset visits --mechanisms laplace:scale=1"),
        ("sh", "export A=$(accountant key create)"),
        ("sh", "make instal"),
        ("sh", "ACCOUNTANT_HOMES=/srv accountant serve"),
        ("sh", "pip install 'privacy-accountant-client[nothing]'"),
        ("sh", "kubectl apply -f deploy/kubernetes/names.yaml"),
        ("sh", "ls"),
        ("console", "$ accountant doctors\nfine"),
        ("console", "fine"),
        ("python", "with ledger.grant("),
    ],
)
def test_an_example_that_is_wrong_is_found(language: str, code: str) -> None:
    """A misspelt field, option, command, call, target, variable, extra or file fails."""
    assert complaint(language, code) is not None


def test_a_script_is_taken_apart() -> None:
    """Variables, redirections, continued lines, several commands and those in others."""
    script = "export A=$(accountant x -p y) B=1\naccountant z \\\n  --a 'b c' > d && make e # f\n"
    found = list(commands_of(script))
    assert ["accountant", "x", "-p", "y"] in found
    assert ["accountant", "z", "--a", "b c"] in found
    assert ["make", "e"] in found


def test_both_programs_read_commands() -> None:
    """A command may be one of the service's client, or one beside the database."""
    check_command(["accounts", "-p", "visitors", "--by", "country"])
    check_command(["run", "--dataset", "visits", "--mechanism", "laplace:scale=1", "--", "dbt"])
    check_command(["--home", "/srv", "replay", "-p", "visitors"])


def test_what_prometheus_is_told_is_what_is_shipped() -> None:
    """The jobs on the page (docs/how-to/operate.md) are those of deploy/prometheus."""
    [block] = [
        one for one in blocks() if one.page.endswith("operate.md") and one.language == "yaml"
    ]
    shipped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text("utf-8"))
    assert yaml.safe_load(block.code)["scrape_configs"] == shipped["scrape_configs"]
