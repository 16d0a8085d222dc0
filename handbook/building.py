"""Writes the site: pages of Markdown and of the code, files that they lead to, and the search."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from accountant import __version__
from accountant.api.app import create_app
from accountant.api.description.openapi import document
from accountant.api.description.page import contents
from accountant.config.settings import Settings
from handbook import commands, for_models, python_reference, searching
from handbook.catalogue import ROOT, Group, Page, Section, records, sections
from handbook.links import AS_IT_IS, Links, relative
from handbook.markdown import Entry, Rendered, coloured, render

_HERE: Final = Path(__file__).parent
_HTTP: Final = Page(
    "reference/http.html",
    "HTTP interface",
    "Every call with its fields, answers and problems, and an example that a test runs.",
    None,
)
_OPTIONS: Final = Page(
    "reference/options.html",
    "Every command and its options",
    "What `--help` says of each command.",
    None,
)
_PYTHON: Final = Page(
    "reference/python.html",
    "Python reference",
    "What pipelines import: the client, queries, and what tests of pipelines use.",
    None,
)


@dataclass(frozen=True)
class Site:
    """What was built."""

    sections: list[Section]
    pages: dict[str, Rendered]
    """By address."""


def build(out: Path) -> Site:
    """Write the site to a folder, which is emptied first. Raise ValueError if a link of the pages
    leads to a file that is not there, or if the folder holds something else.
    """
    _emptied(out)
    chapters = [*sections()]
    _reference(chapters).groups.append(Group("From the code", [_HTTP, _PYTHON, _OPTIONS]))
    listed = [page for one in chapters for group in one.groups for page in group.pages]
    start = Page("index.html", "accountant", "The documentation.", ROOT / "docs/README.md")
    pages = [start, *listed, *records()]
    links = Links({page.source: page for page in pages if page.source})
    writer = _Writer(out, chapters, listed)
    texts: dict[str, str] = {}
    built: dict[str, Rendered] = {}
    for page in pages:
        if page is _HTTP:
            built[page.address] = _http(out)
        else:
            texts[page.address] = _markdown(page)
            to = partial(links.from_page, page.source or ROOT / "docs" / page.address, page.address)
            built[page.address] = render(texts[page.address], to, to)
        writer.page(page, built[page.address])
    _files(links, writer)
    writer.write("search.html", "search.html.j2", title="Search")
    for static in (_HERE / "static").iterdir():
        shutil.copy(static, out / static.name)
    full = ((page, texts[page.address]) for page in listed if page.address in texts)
    for name, text in {
        "index.js": searching.script((page, built[page.address]) for page in pages),
        "llms.txt": for_models.overview(chapters),
        "llms-full.txt": for_models.whole(full),
    }.items():
        (out / name).write_text(text, encoding="utf-8")
    return Site(chapters, built)


def _emptied(out: Path) -> None:
    """Remove a site that was built before, and nothing else."""
    if out.exists() and any(out.iterdir()) and not (out / "llms.txt").exists():
        raise ValueError(f"{out} holds something that is no site: name another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _reference(chapters: list[Section]) -> Section:
    return next(one for one in chapters if one.title == "Reference")


def _markdown(page: Page) -> str:
    """Return the Markdown of a page."""
    if page.source:
        return page.source.read_text(encoding="utf-8")
    return {_OPTIONS: commands.page, _PYTHON: python_reference.page}[page]()


def _http(out: Path) -> Rendered:
    """Return the description of the HTTP interface, as a service shows it, and write the OpenAPI
    document beside it.
    """
    app = create_app(None, Settings(), None)  # it answers nothing here
    openapi = out / "reference/openapi.json"
    openapi.parent.mkdir(exist_ok=True)
    openapi.write_text(json.dumps(document(app), indent=1), encoding="utf-8")
    said = f"{_HTTP.says} A running service shows the same at <code>/docs</code>."
    programs = '<a href="openapi.json">openapi.json</a> is for programs.'
    html = f"<h1>{_HTTP.title}</h1>\n<p>{said} {programs}</p>\n{contents(app)}"
    return Rendered(html, [Entry("", _HTTP.title, _HTTP.says, 1), *_calls(document(app))])


def _calls(spec: dict[str, Any]) -> Iterator[Entry]:
    """Yield the calls as what can be found on the page."""
    for path, methods in spec["paths"].items():
        for method, call in methods.items():
            says = f"{call['summary']} {call['description']}"
            yield Entry(call["operationId"], f"{method.upper()} {path}", says, 2)


def _files(links: Links, writer: _Writer) -> None:
    """Write the files that pages lead to; lists of folders lead to further ones."""
    done: set[Path] = set()
    while todo := [path for path in links.files if path not in done]:
        for path in todo:
            done.add(path)
            address, name = links.files[path], path.relative_to(ROOT).as_posix()
            if path.is_dir():
                inside = [one for one in sorted(path.iterdir()) if one.name[:1] not in "._"]
                items = {one.name: relative(address, links.of_file(one)) for one in inside}
                writer.write(address, "folder.html.j2", title=name, items=items)
            elif path.suffix in AS_IT_IS:
                (writer.out / address).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, writer.out / address)
            else:
                text = path.read_text(encoding="utf-8")
                code = Markup(coloured(text, path.suffix.removeprefix(".")))  # noqa: S704 escaped
                writer.write(address, "file.html.j2", title=name, code=code)


class _Writer:
    """Writes pages in the frame that all have."""

    def __init__(self, out: Path, chapters: list[Section], listed: list[Page]) -> None:
        self.out = out
        self._chapters, self._listed = chapters, listed
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def page(self, page: Page, rendered: Rendered) -> None:
        """Write a page with its headings beside it, and the pages before and after it."""
        before = after = None
        if page in self._listed:
            place = self._listed.index(page)
            before = self._listed[place - 1] if place else None
            after = self._listed[place + 1] if place + 1 < len(self._listed) else None
        heading, end, body = rendered.html.partition("</h1>\n")
        headings = [one for one in rendered.entries if one.level in (2, 3)]
        self.write(
            page.address,
            "page.html.j2",
            title=page.title,
            heading=Markup(heading + end),  # noqa: S704 made from our own Markdown
            body=Markup(body),  # noqa: S704 likewise
            headings=headings if page is not _HTTP else [],
            before=before,
            after=after,
        )

    def write(self, address: str, template: str, **values: Any) -> None:
        """Write a page from a template."""
        path = self.out / address
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {
            "address": address,
            "sections": self._chapters,
            "version": __version__,
            "to": partial(relative, address),
        }
        html = self._templates.get_template(template).render(known | values)
        path.write_text(html, encoding="utf-8")
