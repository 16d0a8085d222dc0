"""The description of the API: the OpenAPI document, its examples, and the page at /docs.

The texts are data, in YAML beside the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from accountant import __version__


def data(name: str) -> Any:
    """Return the contents of the data file ``name``; $VERSION stands for the program's version."""
    text = (Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text.replace("$VERSION", __version__))
