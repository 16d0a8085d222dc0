"""``llms.txt`` (llmstxt.org): what a language model has to know of the site, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from handbook.catalogue import START, Page, Section

_OPTIONAL: Final = "Project"
"""The section that can be left out where there is little room."""


def overview(sections: Iterable[Section]) -> str:
    """Return ``llms.txt``: the project in a sentence, then a link and a sentence for each page."""
    lines = ["# accountant", "", f"> {_summary()}", ""]
    for section in sections:
        lines += [f"## {'Optional' if section.title == _OPTIONAL else section.title}", ""]
        pages = [page for group in section.groups for page in group.pages]
        lines += [f"- [{page.title}]({page.address}): {page.says}" for page in pages]
        lines.append("")
    return "\n".join(lines)


def whole(pages: Iterable[tuple[Page, str]]) -> str:
    """Return ``llms-full.txt``: the Markdown of all pages, each after its address."""
    return "\n".join(f"<!-- {page.address} -->\n\n{text.strip()}\n" for page, text in pages)


def _summary() -> str:
    """Return the first paragraph of ``docs/README.md`` after its heading, up to the first dot."""
    paragraph = START.read_text(encoding="utf-8").split("\n\n")[1]
    first, _, _ = " ".join(paragraph.split()).replace("**", "").partition(". ")
    return f"{first}."
