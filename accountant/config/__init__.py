"""Settings, logs, and the files that ship with the code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_INSTALLED: Final = _PACKAGE / "_shipped"


def shipped(name: str) -> Path:
    """Return the path of ``migrations``, ``policies`` or ``reports/templates``."""
    return (_INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent) / name  # else a checkout
