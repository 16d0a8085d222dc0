"""Where the files are that ship beside the code: migrations, policies, report templates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_CHECKOUT: Final = Path(__file__).resolve().parent.parent
_INSTALLED: Final = Path(sys.prefix) / "share" / "accountant"


def shipped(name: str) -> Path:
    """The path of ``migrations``, ``policies`` or ``reports/templates``."""
    beside = _CHECKOUT / name
    return beside if (_CHECKOUT / "pyproject.toml").exists() else _INSTALLED / name
