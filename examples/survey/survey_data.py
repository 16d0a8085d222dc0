"""The data: Fair's survey of 6,366 married women (1974, published 1978), as statsmodels ships it.

The data are public, so the demonstration may print true numbers beside noisy ones. A pipeline on
private data must never do that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

POPULATION: Final = "fair-survey"
WOMEN: Final = 6_366

# A dimension is public and never changes: a woman stays in one cell for life, and only therefore do
# charges to disjoint groups not add up for her. These three are stated as of the day of the survey
# (age today would not do), as a directory of the invited would list them. Religiousness, marriage,
# children and affairs are protected.
DIMENSIONS: Final[dict[str, dict[float, str]]] = {
    "education": {
        9.0: "grade school",
        12.0: "high school",
        14.0: "some college",
        16.0: "college graduate",
        17.0: "some graduate school",
        20.0: "advanced degree",
    },
    "age_at_survey": {
        17.5: "under 20",
        22.0: "20-24",
        27.0: "25-29",
        32.0: "30-34",
        37.0: "35-39",
        42.0: "40 or over",
    },
    "occupation_at_survey": {
        1.0: "student",
        2.0: "farming, semi-skilled or unskilled",
        3.0: "white-collar",
        4.0: "teaching, nursing, arts, skilled",
        5.0: "managerial, business",
        6.0: "professional with advanced degree",
    },
}
_COLUMNS: Final = {
    "education": "educ",
    "age_at_survey": "age",
    "occupation_at_survey": "occupation",
}

DATASETS: Final[dict[str, tuple[str, ...]]] = {
    "marriages": ("rate_marriage", "yrs_married", "religious"),
    "households": ("children",),
    "affairs": ("affairs",),
}
"""The columns of three datasets about the same women: a woman's total is over all three."""
RATINGS: Final = ("very poor", "poor", "fair", "good", "very good")
"""The meaning of ``rate_marriage`` 1 to 5."""
CHILDREN: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 5.5)
"""The values of ``children``; 5.5 stands for five or more."""


class Survey:
    """The answers, one row a woman. Raises ValueError if the survey is not the one known here."""

    def __init__(self) -> None:
        from statsmodels.datasets import fair  # noqa: PLC0415 (slow to import)

        self._answers: Any = fair.load_pandas().data
        self._groups = {
            dimension: self._answers[column].map(DIMENSIONS[dimension])
            for dimension, column in _COLUMNS.items()
        }
        known = all(labels.notna().all() for labels in self._groups.values())
        if len(self._answers) != WOMEN or not known:
            raise ValueError("statsmodels ships another survey than this demonstration knows")

    def column(self, dataset: str, name: str) -> NDArray[np.float64]:
        """Return a column. Raise KeyError if it is no column of ``dataset``, for which the pipeline
        was granted its budget.
        """
        if name not in DATASETS[dataset]:
            raise KeyError(f"dataset {dataset} has no column {name}")
        column: NDArray[np.float64] = self._answers[name].to_numpy(dtype=np.float64)
        return column

    def members(self, **group: str) -> NDArray[np.bool_]:
        """Return which women are in a group, e.g. ``education="high school"``; all if not given."""
        rows = np.ones(WOMEN, dtype=np.bool_)
        for dimension, label in group.items():
            rows &= self._groups[dimension].to_numpy() == label
        return rows


def labels(dimension: str) -> list[str]:
    """Return the values of a dimension, in order."""
    return list(DIMENSIONS[dimension].values())
