"""The documentation as a site: whole, closed in itself, with a place for each thing there is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from html import unescape
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from accountant.api.description.texts import PROBLEMS, STORY
from accountant.auth import ring
from accountant.budget import reading
from accountant.budget.rules import KINDS as RULE_KINDS
from accountant.cli import COMMANDS
from accountant.client.environment import VARIABLES
from accountant.config.settings import Settings
from accountant.privacy.mechanisms import KINDS as MECHANISM_KINDS
from accountant.reporting.metrics import METRICS
from handbook import build, commands, python_reference
from handbook.building import Site
from handbook.catalogue import DOCS, RECORDS, ROOT, START
from handbook.links import dead
from handbook.markdown import name_of, render

pytestmark = pytest.mark.xdist_group("site")  # built once

THINGS: dict[str, tuple[str, Callable[[], Iterable[str]]]] = {
    "settings": (
        "reference/settings.html",
        lambda: [f"ACCOUNTANT_{name.upper()}" for name in Settings.__dataclass_fields__],
    ),
    "variables of the client": ("reference/settings.html", lambda: VARIABLES),
    "commands": (
        "reference/command-line.html",
        lambda: [f"accountant {name}" for name in set().union(*COMMANDS.values())],
    ),
    "commands with their options": (
        "reference/options.html",
        lambda: [f"accountant {name}" for name in commands.commands() if name],
    ),
    "rule kinds": ("reference/rules.html", lambda: RULE_KINDS),
    "mechanism kinds": ("reference/mechanisms.html", lambda: MECHANISM_KINDS),
    "problem codes": ("reference/problem-codes.html", lambda: PROBLEMS),
    "event types": ("reference/events.html", lambda: reading.TYPES | ring.TYPES),
    "metrics": ("reference/metrics.html", lambda: METRICS),
    "calls": ("reference/http.html", lambda: {example.call for example in STORY}),
    "the client's names": (
        "reference/python.html",
        lambda: [
            *(name for one in _modules() for name in python_reference.public_names(one)),
            *(f"accountant.adapters.{one}" for one in _adapters()),
        ],
    ),
}
"""What has to be documented, by the page that has a heading or a row for each of them."""


def _adapters() -> set[str]:
    """The adapters, without what they share."""
    files = {path.stem for path in (ROOT / "accountant/adapters").glob("[a-z]*")}
    return files - {"libraries", "shared_training", "tasks"}


def _modules() -> list[ModuleType]:
    return [import_module(name) for name in python_reference.MODULES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site."""
    return tmp_path_factory.mktemp("documentation")


@pytest.fixture(scope="module")
def site(folder: Path) -> Site:
    """The site."""
    return build(folder)


@pytest.fixture(scope="module")
def index(folder: Path, site: Site) -> list[list[object]]:
    """What the search looks through."""
    script = (folder / "index.js").read_text(encoding="utf-8")
    found: list[list[object]] = json.loads(script.removeprefix("const INDEX = ").rstrip(";\n"))
    return found


def test_no_link_is_dead(folder: Path, site: Site) -> None:
    """Each link of each page leads to a file of the site and to an id that is there, once."""
    assert dead(folder) == []


def test_a_dead_link_would_be_found(folder: Path, site: Site, tmp_path: Path) -> None:
    """A missing file, a missing anchor and an id that is there twice are told."""
    page = tmp_path / "page.html"
    page.write_text(
        '<h1 id="a">x</h1><a href="none.html">x</a><a href="#b">x</a><a href="#a">y</a>'
    )
    assert dead(tmp_path) == ["page.html: #b", "page.html: none.html"]
    page.write_text('<h1 id="a">x</h1><h2 id="a">y</h2>')
    with pytest.raises(ValueError, match="two elements have the id a"):
        dead(tmp_path)


def test_nothing_is_loaded_from_elsewhere(folder: Path, site: Site) -> None:
    """Scripts, styles and pictures are files of the site, only the search has scripts, and nothing
    fetches.
    """
    for path in folder.rglob("*.html"):
        if path.is_relative_to(folder / "files") and not path.name.endswith(".html.html"):
            continue
        text = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]*)"', text)
        loaded += re.findall(r'<link[^>]* href="([^"]*)"', text)
        assert not [one for one in loaded if re.match(r"(?!data:)\w+:|//", one)], path
        assert "<script" not in text or path.name == "search.html", path
    style = (folder / "site.css").read_text(encoding="utf-8")
    assert "@import" not in style
    assert "url(" not in style
    assert "fetch(" not in (folder / "search.js").read_text(encoding="utf-8")


def test_every_page_is_listed_once(site: Site) -> None:
    """docs/README.md lists each page of docs/ under its own title; the list of decision records has
    these.
    """
    listed = [one for part in site.sections for group in part.groups for one in group.pages]
    sources = [one.source for one in listed if one.source]
    assert len(sources) == len(set(sources))
    there = {page for page in DOCS.rglob("*.md") if page.parent != RECORDS} - {START}
    assert {one for one in sources if one.is_relative_to(DOCS)} == there | {RECORDS / "README.md"}
    for page in listed:
        if page.source in there:
            assert site.pages[page.address].title == page.title, page.address
        assert re.fullmatch(r"\S.+\.", page.says), f"{page.address}: say in a sentence what it is"


def test_each_reader_has_a_page(site: Site) -> None:
    """Pipeline authors, officers, auditors and operators find what they do, in which order."""
    first = site.sections[0].groups[0].pages
    readers = {page.address for page in first}
    assert readers == {
        f"readers/{one}.html" for one in ("pipelines", "officer", "auditor", "operator")
    }
    for page in first:
        assert page.source
        text = page.source.read_text(encoding="utf-8")
        assert len(re.findall(r"\]\(\.\./", text)) >= 8
        assert re.search(r"^1\. ", text, re.MULTILINE)


@pytest.mark.parametrize("kind", THINGS)
def test_everything_has_a_place(
    kind: str, folder: Path, site: Site, index: list[list[object]]
) -> None:
    """Each thing that the program has is a heading or a row of its page, where a link can lead, and
    the search knows it. What the rows hold is the matter of tests/docs/test_docs.py.
    """
    address, names = THINGS[kind]
    ids = set(re.findall(r' id="([^"]+)"', (folder / address).read_text(encoding="utf-8")))
    places = {str(entry[0]) for entry in index}
    missing = []
    for name in names():
        anchors = {unescape(name_of(name)), re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")}
        if not any(one in ids and f"{address}#{one}" in places for one in anchors):
            missing.append(name)
    assert list(names())
    assert not missing


def test_every_option_says_what_it_does() -> None:
    """Each command, and each of its options, has a text in the help and on the page."""
    page = commands.page()
    for name, forms in commands.commands().items():
        for form in forms:
            assert form.says, name
            for option in form.options:
                assert option.says, f"accountant {name} {option.names}"
                assert f"| `{'`, `'.join(option.names)}` |" in page


def test_every_command_below_another_is_told_of() -> None:
    """The row of a command in docs/reference/command-line.md names those below it."""
    rows = (DOCS / "reference/command-line.md").read_text(encoding="utf-8").splitlines()
    for name in commands.commands():
        above, _, below = name.partition(" ")
        if below:
            [row] = [row for row in rows if row.startswith(f"| `accountant {above}` |")]
            assert re.search(rf"`{below}\b", row), name


def test_the_python_reference_explains_each_name() -> None:
    """Each public name that is a class or a function, and each method, has a docstring; code in
    one is shown as code.
    """
    page = python_reference.page()
    assert not re.search("::$", page, re.MULTILINE)
    assert "```python\nfrom accountant.client import Client, laplace\n" in page
    for module in _modules():
        for name in python_reference.public_names(module):
            value = getattr(module, name)
            if isinstance(value, type):
                for below, method in python_reference.methods(value).items():
                    assert method.__doc__, f"{name}.{below}"
            assert value.__doc__, name


def test_no_default_shows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that is an object, such as the environment, is not written out."""
    monkeypatch.setenv("ACCOUNTANT_KEY", "not-for-the-page")
    page = python_reference.page()
    assert "env: Mapping[str, str] = …" in page
    assert "not-for-the-page" not in page


def test_language_models_have_an_overview(folder: Path, site: Site) -> None:
    """llms.txt has the form of llmstxt.org: a title, a summary, and sections of links with a
    sentence each, which lead to pages; llms-full.txt has the text of all pages.
    """
    lines = (folder / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# accountant"
    assert lines[2].startswith("> accountant keeps account")
    items = [line for line in lines[3:] if line and not line.startswith("## ")]
    for item in items:
        found = re.fullmatch(r"- \[[^]]+\]\(([^)]+)\): \S.+\.", item)
        assert found, item
        assert (folder / found[1]).is_file(), item
    assert "## Optional" in lines
    full = (folder / "llms-full.txt").read_text(encoding="utf-8")
    assert all(
        page in full for page in ("# Rules of a policy", "# Settings", "# You are the auditor")
    )
    assert len(items) == sum(len(group.pages) for one in site.sections for group in one.groups)


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    """Building empties only what was built before."""
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="name another folder"):
        build(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_markdown_keeps_the_anchors_of_code_hosts() -> None:
    """Headings have the anchors that links on a code host name; rows and terms come after them."""
    text = "# A `b`\n\n## Be *it*\n\n## Be it\n\n| x | y |\n|---|---|\n| `be-it` | z |\n\n"
    text += "**b c** - d\n"
    rendered = render(text, str, str)
    found = [(one.anchor, one.title, one.text) for one in rendered.entries]
    assert found == [
        ("a-b", "A b", ""),
        ("be-it", "Be it", ""),
        ("be-it-1", "Be it", "x y"),
        ("be-it-2", "be-it", "z"),
        ("b-c", "b c", "b c - d"),
    ]


def test_markup_of_the_source_does_not_run() -> None:
    """Code is shown as it stands, whatever it holds, and remarks are not shown at all."""
    rendered = render("<!-- not run: x -->\n```html\n<b>&amp;</b>\n```\n`<i>`\n", str, str).html
    assert "not run" not in rendered
    assert "<b>" not in rendered
    assert "<i>" not in rendered
    assert ROOT.name not in rendered
