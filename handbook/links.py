"""Where links of the Markdown lead on the site, and the pages for files that are not Markdown."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from handbook.catalogue import ROOT, Page

_ELSEWHERE: Final = re.compile(r"[a-z][a-z0-9+.-]*:")
AS_IT_IS: Final = frozenset({".html", ".png", ".jpg", ".svg", ".pdf"})
"""Endings of files that browsers show."""


class Links:
    """Turns targets in the files of the repository into addresses of the site."""

    def __init__(self, pages: Mapping[Path, Page]) -> None:
        self._pages = pages
        self.files: dict[Path, str] = {}
        """Files and folders that pages lead to, with the address of each."""

    def from_page(self, source: Path, address: str, target: str) -> str:
        """Return where a link of a file leads, seen from the page at ``address``. Raise ValueError
        if it leads nowhere.
        """
        if _ELSEWHERE.match(target):
            return target
        place, _, anchor = target.partition("#")
        behind = f"#{anchor}" if anchor else ""
        if not place:
            return behind
        return relative(address, self._place(source, place)) + behind

    def _place(self, source: Path, place: str) -> str:
        linked = Path(os.path.normpath(source.parent / place))
        if not linked.exists() or not linked.is_relative_to(ROOT):
            raise ValueError(f"{source.relative_to(ROOT)} links to {place}, which is not there")
        page = self._pages.get(linked) or self._pages.get(linked / "README.md")
        return page.address if page else self.of_file(linked)

    def of_file(self, path: Path) -> str:
        """Return the address of a file, or of the list of a folder, which is then built, too."""
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir():
            name += "/index.html"
        elif path.suffix not in AS_IT_IS:
            name += ".html"
        return self.files.setdefault(path, f"files/{name}")


def relative(address: str, target: str) -> str:
    """Return an address of the site as it is written on the page at ``address``."""
    return posixpath.relpath(target, posixpath.dirname(address) or ".")


class _Found(HTMLParser):
    """The ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value in self.ids:
                raise ValueError(f"two elements have the id {value}")
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src", "action"):
                self.links.add(value or "")


def dead(folder: Path) -> list[str]:
    """Return the links of a site that lead nowhere: to no file of it, or to no id of a page."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        if (folder / "files") not in path.parents or path.name.endswith(".html.html"):
            pages[path] = _Found(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(folder)}: {link}"
        for path, page in pages.items()
        for link in sorted(page.links)
        if not _ELSEWHERE.match(link) and not _leads(pages, path, link)
    ]


def _leads(pages: Mapping[Path, _Found], page: Path, link: str) -> bool:
    target, anchor = urlsplit(link).path, unquote(urlsplit(link).fragment)
    path = Path(os.path.normpath(page.parent / unquote(target))) if target else page
    if not path.is_file():
        return False
    return not anchor or path not in pages or anchor in pages[path].ids
