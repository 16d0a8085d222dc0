"""The ledgers of the evidence tests are what a release is frozen by."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "evidence"))
