"""Markdown to HTML: headings and rows that can be linked to, colours for code, links of the site.

The Markdown is what a code host shows: CommonMark with tables, links relative to the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

_CODE: Final = re.compile(r"`([^`]+)`")
_TERM: Final = re.compile(r"\*\*(.+?)\*\* - ")
_ENDS: Final = {"tr_open": "tr_close", "paragraph_open": "paragraph_close"}
"""Where what is about one thing ends."""
_LONGEST: Final = 80
"""Characters of a row's name that can be linked to."""


@dataclass(frozen=True)
class Entry:
    """A part of a page that can be found and linked to: a section, or one thing in a row or a list
    of terms.
    """

    anchor: str
    title: str
    text: str
    level: int
    """Of a section, that of its heading; 0 of a row or a term."""


@dataclass
class Rendered:
    """A page as HTML, with its parts."""

    html: str
    entries: list[Entry] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The first heading."""
        return next((one.title for one in self.entries if one.level == 1), "")


def render(text: str, link: Callable[[str], str], image: Callable[[str], str]) -> Rendered:
    """Return a page. ``link`` and ``image`` turn a target of the file into one of the site."""
    parser = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table")
    tokens = parser.parse(text)
    entries = _anchored(tokens)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                child.attrs["href"] = link(str(child.attrs["href"]))
            elif child.type == "image":
                child.attrs["src"] = image(str(child.attrs["src"]))
    _labelled(tokens)
    return Rendered(parser.renderer.render(tokens, parser.options, {}), entries)


def coloured(code: str, language: str) -> str:
    """Return code as HTML; a language that Pygments does not know is shown as text."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))


def slug(heading: str) -> str:
    """Return the anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def name_of(code: str) -> str:
    """Return the anchor of one thing: its name, as far as anchors can spell it."""
    return re.sub(r"[^\w.]+", "-", code[:_LONGEST]).strip("-")


class _Renderer(RendererHTML):
    """Adds what the site needs to what the parser makes; no comment of the source is shown."""

    def fence(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """A block of code."""
        token = tokens[idx]
        return _block(token.content, token.info.strip())

    def code_block(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """An indented block of code."""
        return _block(tokens[idx].content, "text")

    def table_open(self, *_: Any) -> str:
        """A table, which scrolls where it does not fit."""
        return '<div class="tablewrap"><table role="table">\n'

    def table_close(self, *_: Any) -> str:
        """The end of a table."""
        return "</table></div>\n"

    def html_block(self, tokens: Sequence[Token], idx: int, *_: Any) -> str:
        """HTML of the source, without its comments."""
        return re.sub(r"<!--.*?-->\s*", "", tokens[idx].content, flags=re.DOTALL)


def _block(code: str, language: str) -> str:
    kind = f' class="of-{escape(language)}"' if language else ""
    return f'<pre{kind} tabindex="0"><code>{coloured(code, language or "text")}</code></pre>\n'


def _anchored(tokens: list[Token]) -> list[Entry]:
    """Give an id to headings, to rows whose first cell is one code, and to terms (in bold before a
    dash). Return them with their texts.
    """
    used: set[str] = set()
    found: dict[int, Entry] = {}
    headings = [i for i, token in enumerate(tokens) if token.type == "heading_open"]
    for i in headings:  # first, for their anchors are those of code hosts
        tokens[i].attrs["id"] = _unused(slug(_plain(tokens[i + 1])), used)
    for i, token in enumerate(tokens):
        if name := _thing(tokens, i):
            token.attrs["id"] = _unused(name_of(name), used)
            end = next(j for j in range(i, len(tokens)) if tokens[j].type == _ENDS[token.type])
            text = " ".join(map(_plain, tokens[i + 3 : end] or tokens[i + 1 : end]))
            found[i] = Entry(str(token.attrs["id"]), name, " ".join(text.split()), 0)
    for i in headings:
        anchor, level = str(tokens[i].attrs["id"]), int(tokens[i].tag[1])
        text = _until_next(tokens[i + 3 :])
        found[i] = Entry(anchor, _plain(tokens[i + 1]), text, level)
    return [entry for _, entry in sorted(found.items())]


def _thing(tokens: Sequence[Token], i: int) -> str | None:
    """Return the name of the one thing that a row, or a paragraph, is about."""
    if tokens[i].type == "tr_open" and tokens[i + 1].type == "td_open":
        code = _CODE.fullmatch(tokens[i + 2].content)
        return code[1] if code else None
    if tokens[i].type == "paragraph_open":
        term = _TERM.match(tokens[i + 1].content)
        return term[1] if term else None
    return None


def _unused(anchor: str, used: set[str]) -> str:
    """Return the anchor with a number behind it if it is taken, as code hosts do."""
    found, number = anchor, 0
    while found in used:
        number += 1
        found = f"{anchor}-{number}"
    used.add(found)
    return found


def _until_next(tokens: Sequence[Token]) -> str:
    """Return the text of a section up to the next heading, without what has an entry of its own."""
    texts: list[str] = []
    skipped = ""
    for token in tokens:
        if token.type == "heading_open":
            break
        if skipped:
            skipped = "" if token.type == skipped else skipped
        elif token.type in _ENDS and "id" in token.attrs:
            skipped = _ENDS[token.type]
        elif token.type == "inline":
            texts.append(_plain(token))
        elif token.type in ("fence", "code_block"):
            texts.append(token.content)
    return " ".join(" ".join(texts).split())


def _plain(inline: Token) -> str:
    """Return the text of a token without its markup."""
    return "".join(
        " " if child.type in ("softbreak", "hardbreak") else child.content
        for child in inline.children or ()
        if child.type in ("text", "code_inline", "softbreak", "hardbreak")
    )


def _labelled(tokens: list[Token]) -> None:
    """Give each cell the name of its column, to be shown where rows are stacked, and each part of a
    table its role, which browsers forget where it is not laid out as a table.
    """
    heads: list[str] = []
    column = 0
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            heads = []
        elif token.type == "tr_open":
            column = 0
            token.attrs["role"] = "row"
        elif token.type == "th_open":
            heads.append(_plain(tokens[i + 1]))
            token.attrs |= {"role": "columnheader", "scope": "col"}
        elif token.type == "td_open":
            token.attrs |= {"role": "cell", "data-l": heads[column]}
            column += 1
