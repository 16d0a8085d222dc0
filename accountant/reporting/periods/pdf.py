"""A document as PDF, by typst: tagged (PDF/UA-1), so that it can be searched and read aloud.

The texts are data of the template, never markup, and no font of the machine takes part: the same
document gives the same bytes anywhere. What the fonts of typst lack (Chinese, Japanese and Korean
writing, emoji) is written by its code point, [U+D55C], and a line says so.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from accountant.budget.errors import Unavailable
from accountant.config import shipped
from accountant.reporting.periods.document import Document
from accountant.reporting.safely import visible

NO_PDF: Final = (
    "PDF needs the extra “pdf”: pip install 'privacy-accountant[pdf]'. HTML, CSV and JSON do not."
)
_STANDARD: Final = "ua-1"
_COVERED: Final = 0x250
"""Characters below this are in every font."""
_ALIKE: Final = {"✕": "✗"}
_ONE: Final = b"""
#set document(title: "x")
#set text(lang: "en")
#sys.inputs.text
"""


def to_pdf(document: Document) -> bytes:
    """Return the document as PDF. Raise Unavailable where typst is not installed."""
    try:
        import typst  # noqa: PLC0415 an extra
    except ImportError:
        raise Unavailable("no-pdf", NO_PDF) from None
    shown = _shown(msgspec.to_builtins(document))
    text = json.dumps(shown, ensure_ascii=False)
    missing = {one for one in set(text) if ord(one) >= _COVERED and not _known(one)}
    for one in sorted(missing):
        text = text.replace(one, f"[U+{ord(one):04X}]")
    found: bytes = typst.compile(
        (shipped("reports/templates") / "document.typ").read_bytes(),
        sys_inputs={"document": text, "missing": str(len(missing))},
        ignore_system_fonts=True,
        pdf_standards=_STANDARD,
        timestamp=datetime.fromisoformat(document.last).replace(tzinfo=UTC),
    )
    return found


@lru_cache(maxsize=4_096)
def _known(character: str) -> bool:
    """Return whether a font has a character: a page of nothing else tells."""
    import typst  # noqa: PLC0415 an extra

    inputs = {"text": character}
    try:
        typst.compile(_ONE, sys_inputs=inputs, ignore_system_fonts=True, pdf_standards=_STANDARD)
    except typst.TypstError:
        return False
    return True


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        text = visible(value)
        for one, other in _ALIKE.items():
            text = text.replace(one, other)
        return text
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
    return {name: _shown(one) for name, one in value.items()} if isinstance(value, dict) else value
