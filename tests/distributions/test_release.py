"""What a release says of itself; `make release` builds one, and tries it where nothing else is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging" / "release"))

import stated  # noqa: E402 (it lies beside what builds the release)


def test_every_place_names_the_same_version() -> None:
    """The package, both distributions, the deployment files and the pages agree."""
    assert stated.faults(ROOT, draft=True) == []


@pytest.mark.parametrize("name", sorted({name for name, _ in stated.NAMED}))
def test_another_version_is_noticed(name: str, tmp_path: Path) -> None:
    """A place that was forgotten stops the release, and is named."""
    version = stated.version(ROOT)
    for each, _ in stated.NAMED:
        text = (ROOT / each).read_text()
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text(text.replace(version, "9.9.9") if each == name else text)
    assert any(name in fault for fault in stated.faults(tmp_path, draft=True))
