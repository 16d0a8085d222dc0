"""Where the files are that ship beside the code: migrations, policies, report templates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_INSTALLED: Final = _PACKAGE / "_shipped"


def shipped(name: str) -> Path:
    """The path of ``migrations``, ``policies`` or ``reports/templates``: inside the package where
    it is installed, beside it in a checkout.
    """
    return (_INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent) / name
