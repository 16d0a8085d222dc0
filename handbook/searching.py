"""The index of the site: a script that holds all texts, since pages in a folder may not fetch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from handbook.catalogue import Page
from handbook.markdown import Rendered

_LATER: Final = ("adr/", "project/changelog")
"""Pages that are found after the others: what was decided, and what has changed."""


def script(pages: Iterable[tuple[Page, Rendered]]) -> str:
    """Return the index as a script. An entry is address, page, heading, text and a rank: 2 for one
    thing of the reference, 0 for what stands on a page that comes later, 1 for all else.
    """
    entries = []
    for page, rendered in pages:
        later = page.address.startswith(_LATER)
        for entry in rendered.entries:
            place = page.address if entry.level == 1 else f"{page.address}#{entry.anchor}"
            rank = 0 if later else 1 + (entry.level == 0 and page.source is not None)
            entries.append([place, page.title, entry.title, entry.text, rank])
    # No text can end the script or begin a comment in it.
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"const INDEX = {text};\n"
