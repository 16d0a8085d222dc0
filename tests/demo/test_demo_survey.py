"""The demonstration's data, its policy and its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from accountant.budget.policy_file import parse_policy
from examples.survey import survey_data
from examples.survey.__main__ import POLICY
from examples.survey.running import AUDIT, README, NotOurs, prepare


def test_women() -> None:
    """The survey has 6,366 women, each in exactly one cell."""
    survey = survey_data.Survey()
    assert survey.members().sum() == 6_366
    for dimension in survey_data.DIMENSIONS:
        sizes = [survey.members(**{dimension: value}).sum() for value in labels(dimension)]
        assert sum(sizes) == 6_366
        assert min(sizes) > 0


def labels(dimension: str) -> list[str]:
    """The labels of a dimension are distinct."""
    found = survey_data.labels(dimension)
    assert len(set(found)) == len(found)
    return found


def test_columns() -> None:
    """A pipeline cannot read a column of a dataset that it was given no budget for."""
    survey = survey_data.Survey()
    assert set(survey.column("households", "children")) == set(survey_data.CHILDREN)
    with pytest.raises(KeyError):
        survey.column("households", "affairs")


def test_dimensions_are_not_protected_data() -> None:
    """No dimension is a column that a dataset protects."""
    protected = {column for columns in survey_data.DATASETS.values() for column in columns}
    assert not protected & {"age", "educ", "occupation"}


def test_policy() -> None:
    """The policy of the demonstration is valid, and a person's limit bites."""
    policy, _ = parse_policy(POLICY.read_text(encoding="utf-8"))
    limits = {rule.id: rule.limit.epsilon for rule in policy.limits}
    assert limits["person"] < limits["lifetime"] * len(survey_data.DATASETS)


def test_folder_is_replaced(tmp_path: Path) -> None:
    """A folder of an earlier run is replaced, whatever is in it, and only its owner may read it."""
    folder = tmp_path / "out"
    prepare(folder)
    (folder / "old").write_text("old")
    prepare(folder)
    assert sorted(path.name for path in folder.iterdir()) == [README, AUDIT, "logs"]
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["files", "a README of somebody else", "file", "link"])
def test_foreign_folder(tmp_path: Path, kind: str) -> None:
    """Anything that no demonstration wrote is left alone."""
    folder = tmp_path / "out"
    match kind:
        case "files":
            folder.mkdir()
            (folder / "thesis.txt").write_text("precious")
        case "file":
            folder.write_text("precious")
        case "link":
            target = tmp_path / "target"
            prepare(target)
            folder.symlink_to(target)
        case _:
            folder.mkdir()
            (folder / README).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NotOurs):
        prepare(folder)
    assert sorted(tmp_path.rglob("*")) == before
