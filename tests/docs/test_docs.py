"""Whatever can be adopted, asked, set or answered is documented, and links lead somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from accountant.api.description.texts import PROBLEMS
from accountant.auth import ring
from accountant.budget import reading
from accountant.budget.policy_file import parse_policy
from accountant.budget.rules import KINDS as RULE_KINDS
from accountant.cli import COMMANDS
from accountant.client.environment import OF_ADAPTERS, OF_THE_SERVICE, VARIABLES
from accountant.config.settings import Settings
from accountant.privacy.mechanisms import KINDS as MECHANISM_KINDS
from accountant.privacy.mechanisms import BaseMechanism, Mechanism
from accountant.reporting.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(
    {*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")},
    key=lambda path: path.relative_to(ROOT),
)
TERMS = (
    "account", "apply, fold", "batch", "budget", "cell", "charge", "checkpoint", "command envelope",
    "command queue", "commit", "composition", "dataset", "dispatcher", "epoch (of a rule)",
    "evaluator", "event", "expire", "grant", "idempotency index", "judgement", "ledger",
    "lifetime", "limit", "mechanism", "neighbouring relation", "outcome", "peak cell",
    "population", "privacy filter", "privacy loss", "privacy unit", "projection", "release",
    "replay", "reserve", "rule", "sensitivity", "subject group", "unit of work", "verify",
    "window", "witness",
)  # fmt: skip
"""Words that documentation, code and messages share."""


@cache
def text(path: Path) -> str:
    """A page."""
    return path.read_text(encoding="utf-8")


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a reference page whose first cell is one code, by that code."""
    found: dict[str, list[str]] = {}
    for line in text(REFERENCE / page).splitlines():
        first, *others = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] or [""]
        if match := re.fullmatch(r"`([^`]+)`", first):
            assert match[1] not in found, f"{page} has two rows for {match[1]}"
            found[match[1]] = others
    return found


def sections(page: str) -> dict[str, str]:
    """The sections of a reference page whose heading is one code, by that code."""
    parts = re.split(r"^## (.+)$", text(REFERENCE / page), flags=re.MULTILINE)[1:]
    named = zip(parts[::2], parts[1::2], strict=True)
    return {head.strip("`"): body for head, body in named if head.startswith("`")}


def test_every_rule_kind_has_a_section() -> None:
    """A kind that a policy may use is in docs/reference/rules.md, and no other is."""
    assert sections("rules.md").keys() == RULE_KINDS.keys()


@pytest.mark.parametrize("kind", RULE_KINDS)
def test_a_rule_kind_is_documented(kind: str) -> None:
    """Its code is in the overview, each of its fields in its section, beside an example."""
    rule, section = RULE_KINDS[kind], sections("rules.md")[kind]
    [overview] = [
        line
        for line in text(REFERENCE / "rules.md").splitlines()
        if line.startswith(f"| [`{kind}`](#{kind})")
    ]
    assert f"`{rule.code}`" in overview
    of_others = {
        name
        for other in RULE_KINDS.values()
        if other is not rule and issubclass(rule, other)
        for name in other.model_fields
    }
    for field in rule.model_fields.keys() - {"id", "action"} - of_others:
        assert f"| `{field}` |" in section, field
    example = re.findall(r"```yaml\n(.+?)```", section, re.DOTALL)[0]
    policy, _ = parse_policy("policy: example\nrules:\n" + example)
    assert any(isinstance(one, rule) for one in policy.rules)


def test_every_mechanism_kind_is_documented() -> None:
    """Each kind has a row in docs/reference/mechanisms.md that names its parameters."""
    documented = rows("mechanisms.md")
    verdicts_and_fields = documented.keys() - set(MECHANISM_KINDS)
    shared = BaseMechanism.model_fields.keys() | {"sensitivity_per"}
    assert set(MECHANISM_KINDS) <= documented.keys()
    for kind in get_args(get_args(Mechanism)[0]):
        [name] = get_args(kind.model_fields["kind"].annotation)
        for field in kind.model_fields.keys() - shared:
            assert f"`{field}`" in documented[name][0], (name, field)
    assert verdicts_and_fields >= shared - {"kind"}


def test_every_setting_is_documented_with_its_default() -> None:
    """docs/reference/settings.md has a row for each variable, and what is used without it; and one
    for each variable of the client, which knows the names of the service's.
    """
    defaults = Settings.from_environment({})
    documented = rows("settings.md")
    settings = {f"ACCOUNTANT_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert documented.keys() == settings | VARIABLES.keys() | OF_ADAPTERS
    assert settings == OF_THE_SERVICE
    for name in Settings.__dataclass_fields__:
        told = documented[f"ACCOUNTANT_{name.upper()}"][0].strip("`")
        default = getattr(defaults, name)
        if isinstance(default, bool):
            default = "yes" if default else "no"
        elif isinstance(default, float):
            default = f"{default:g}"
        assert told == (str(default) or "none"), name


def test_every_metric_is_documented() -> None:
    """docs/reference/metrics.md has a row for each metric, as a scrape describes it, and a meaning
    for each label.
    """
    documented = {name: row for name, row in rows("metrics.md").items() if "_" in name}
    labels = {label for one in METRICS.values() for label in one.labels}
    assert {name for name in documented if name not in labels} == METRICS.keys()
    for name, (kind, meaning, known) in METRICS.items():
        assert documented[name] == [kind, ", ".join(f"`{one}`" for one in known), meaning]
    page = text(REFERENCE / "metrics.md").partition("| label | means |")[2]
    assert labels == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", page, re.M))))


def test_every_problem_code_is_documented_with_its_status() -> None:
    """docs/reference/problem-codes.md has a row for each code of the API, and no other."""
    documented = rows("problem-codes.md")
    assert documented.keys() == PROBLEMS.keys()
    for code, told in PROBLEMS.items():
        assert documented[code][0] == str(told.status or "-"), code
        assert all(documented[code]), f"{code}: say what it means and what to do"


def test_every_event_type_is_documented() -> None:
    """docs/reference/events.md has a row for each type of event that a ledger may hold."""
    documented = {name for name in rows("events.md") if re.search(r"\.v\d+$", name)}
    assert documented == reading.TYPES | ring.TYPES


def test_every_command_is_documented() -> None:
    """docs/reference/command-line.md has a row for each command of the command line."""
    documented = {name.removeprefix("accountant ") for name in rows("command-line.md")}
    assert documented == set().union(*COMMANDS.values())


def test_the_glossary_has_the_words() -> None:
    """Each word that documentation, code and messages share has one entry."""
    entries = re.findall(r"^\*\*(.+?)\*\* - \S", text(DOCS / "glossary.md"), re.MULTILINE)
    assert set(TERMS) <= set(entries)
    assert len(entries) == len(set(entries))


def test_the_glossary_names_classes_that_are_there() -> None:
    """A class that the glossary names is defined in the package."""
    modules = "".join(text(module) for module in (ROOT / "accountant").rglob("*.py"))
    for name in re.findall(r"`([A-Z]\w+)`", text(DOCS / "glossary.md")):
        assert re.search(rf"^class {name}\b", modules, re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that is there, and a heading that it has."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page)):
        place, _, anchor = target.partition("#")
        linked = (page.parent / place).resolve() if place else page
        assert linked.exists(), f"{target}: no such file"
        if anchor:
            assert anchor in anchors(linked), f"{target}: no such heading"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "adr"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_modules_that_are_named_are_there(page: Path) -> None:
    """A Python file that a page names exists, from the root or in the package. The changelog and
    the decision records may name what was.
    """
    for name in re.findall(r"`([\w./]+\.py)`", prose(page)):
        there = (ROOT / name, ROOT / "accountant" / name, *ROOT.glob(f"accountant/**/{name}"))
        assert any(path.exists() for path in there), name


def test_pages_that_the_code_names_are_there() -> None:
    """A page of docs/ that a module refers to exists."""
    for module in (ROOT / "accountant").rglob("*.py"):
        for name in re.findall(r"docs/[\w/-]+\.md", text(module)):
            assert (ROOT / name).exists(), f"{module.relative_to(ROOT)}: {name}"


@pytest.mark.parametrize("page", sorted((DOCS / "adr").glob("[0-9]*.md")), ids=lambda p: p.stem)
def test_a_decision_record_has_its_parts(page: Path) -> None:
    """An ADR has a number of its own, a date and a status, context, alternatives, decision and
    consequences.
    """
    lines = text(page).splitlines()
    assert lines[0].startswith(f"# {page.name[:4]} "), lines[0]
    assert re.match(r"\d{4}-\d\d-\d\d, \w+", lines[2]), lines[2]
    heads = [line for line in lines if line.startswith("## ")]
    assert {"## Context", "## Alternatives", "## Decision", "## Consequences"} <= set(heads)
    assert page.name in text(DOCS / "adr" / "README.md"), "list it in docs/adr/README.md"


def test_decision_records_have_numbers_of_their_own() -> None:
    """No number is used twice."""
    numbers = [page.name[:4] for page in (DOCS / "adr").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text(page), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
