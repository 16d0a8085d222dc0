"""The data: Fair's survey of 6,366 married women (1974, published 1978), as statsmodels ships it.

Public, so that a demonstration may show true numbers beside noisy ones. A pipeline on data that are
not public never does that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

POPULATION: Final = "fair-survey"
WOMEN: Final = 6_366

# A dimension must be public and must never change, for a woman has to stay in one cell for life:
# only then do charges to disjoint groups not add up for her. These three are fixed because they are
# stated as of the day of the survey (her age now would not do), and they are what a directory of
# those invited would list. Religiousness, marriage, children and affairs are what is protected.
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

# Three datasets about the same women, as three tables would be: a woman's total is over all three.
DATASETS: Final[dict[str, tuple[str, ...]]] = {
    "marriages": ("rate_marriage", "yrs_married", "religious"),
    "households": ("children",),
    "affairs": ("affairs",),
}
RATINGS: Final = ("very poor", "poor", "fair", "good", "very good")
"""What ``rate_marriage`` 1 to 5 stand for."""

CHILDREN: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 5.5)
"""The values of ``children``; 5.5 stands for five or more."""

Column = NDArray[np.float64]
Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers, one place a woman in every column."""

    columns: dict[str, Column]

    def column(self, dataset: str, name: str) -> Column:
        """One column of a dataset. A pipeline reads what it was given budget for."""
        if name not in DATASETS[dataset]:
            raise KeyError(f"dataset {dataset} has no column {name}")
        return self.columns[name]

    def members(self, **group: str) -> Rows:
        """Which women are in a public group, e.g. ``education="high school"``; all without."""
        rows = np.ones(len(self.columns["age"]), dtype=np.bool_)
        for dimension, label in group.items():
            codes = {text: code for code, text in DIMENSIONS[dimension].items()}
            rows &= self.columns[_COLUMNS[dimension]] == codes[label]
        return rows


def load() -> Survey:
    """Reads the survey. Raises ValueError if it is not the one that this demonstration knows."""
    from statsmodels.datasets import fair  # noqa: PLC0415 - slow to import; few need it

    frame: Any = fair.load_pandas().data
    survey = Survey({str(name): frame[name].to_numpy(dtype=np.float64) for name in frame})
    if len(frame) != WOMEN:
        raise ValueError(f"the survey has {len(frame)} rows, {WOMEN} are expected")
    for dimension, labels in DIMENSIONS.items():
        strange = set(survey.columns[_COLUMNS[dimension]]) - set(labels)
        if strange:
            raise ValueError(f"{dimension} has values without a label: {sorted(strange)}")
    return survey


def labels(dimension: str) -> list[str]:
    """The values of a dimension, in order."""
    return list(DIMENSIONS[dimension].values())
