"""Which pages there are, and in which order: read from ``docs/README.md``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"
START: Final = DOCS / "README.md"
RECORDS: Final = DOCS / "adr"
_HEADING: Final = re.compile(r"(#{2,3}) (.+)")
_ITEM: Final = re.compile(r"\* \[(.+)\]\((.+?)\): (.+)")


@dataclass(frozen=True)
class Page:
    """A page of the site."""

    address: str
    """Its place below the site's folder, such as ``how-to/deploy.html``."""
    title: str
    says: str
    """What it is about, in one sentence."""
    source: Path | None
    """Its Markdown; None if it is made from the code."""


@dataclass(frozen=True)
class Group:
    """Some pages of a section, under a title of their own or none."""

    title: str
    pages: list[Page]


@dataclass(frozen=True)
class Section:
    """Groups of pages that are of one kind: tutorial, how-to guides, reference, explanation."""

    title: str
    groups: list[Group]


def sections() -> list[Section]:
    """Return the sections of ``docs/README.md``: a heading each, with lists of links to pages and
    what they are about. Raise ValueError for a line of a list that is none.
    """
    found: list[Section] = []
    for line in START.read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.fullmatch(line):
            level, title = heading.groups()
            if level == "##":
                found.append(Section(title, [Group("", [])]))
            else:
                found[-1].groups.append(Group(title, []))
        elif item := _ITEM.fullmatch(line):
            title, target, says = item.groups()
            source = Path(os.path.normpath(DOCS / target))
            found[-1].groups[-1].pages.append(Page(address_of(source), title, says, source))
        elif line.startswith("*") and found:
            raise ValueError(f"docs/README.md: write `* [title](page): sentence`, not {line!r}")
    return found


def records() -> list[Page]:
    """Return the decision records, which ``docs/adr/README.md`` lists."""
    found = []
    for source in sorted(RECORDS.glob("[0-9]*.md")):
        title = source.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        found.append(Page(address_of(source), title, "", source))
    return found


def address_of(source: Path) -> str:
    """Return where the page of a Markdown file is: pages of ``docs/`` keep their place, the others
    are in ``project/``.
    """
    if source == START:
        return "index.html"
    if source.is_relative_to(DOCS):
        place = source.relative_to(DOCS)
        if place.name == "README.md":
            place = place.with_name("index.md")
        return place.with_suffix(".html").as_posix()
    name = "-".join(source.relative_to(ROOT).with_suffix("").parts)
    return f"project/{name.lower()}.html"
