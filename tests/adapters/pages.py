"""The Python of the documents, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

HOW_TO = Path(__file__).resolve().parents[2] / "docs/how-to"


def code(page: str, section: str) -> list[str]:
    """The Python blocks in a section of a page."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if part.partition("\n")[0] == section:
            return re.findall(r"^```python\n(.+?)^```", part, re.DOTALL | re.MULTILINE)
    raise LookupError(f"{page} has no section {section!r}")
