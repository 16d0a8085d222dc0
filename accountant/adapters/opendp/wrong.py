"""Where versions of OpenDP charge less than they lose, and what is done about each.

Each row is a public report. All but one were seen in 0.16.0, or in 0.14.2 where they are repaired
since; that noise was biased before is on OpenDP's own word. A charge is corrected where the truth
is known; otherwise the measurement is refused before anything is asked or drawn.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any, Final, Literal, NamedTuple

Remedy = Literal["corrected", "refused"]
_ISSUES: Final = "https://github.com/opendp/opendp/issues"


class Made(NamedTuple):
    """How an object of OpenDP was made: its constructor with the arguments, and the distance of the
    data at which it is asked.
    """

    constructor: str
    fields: Mapping[str, Any]
    d_in: Any = None


@dataclass(frozen=True, slots=True)
class WrongCharge:
    """A constructor whose map says too little. ``below``: the first version that is right; None if
    none is yet. ``applies`` tells the objects that are concerned from the others.
    """

    constructors: tuple[str, ...]
    below: str | None
    what: str
    truth: str
    remedy: Remedy
    source: str
    applies: Callable[[Made], bool] = lambda made: True

    def dated(self, at: str) -> bool:
        """Return true if the version ``at`` is one that is wrong."""
        return self.below is None or release(at) < release(self.below)

    def concerns(self, made: Made, at: str) -> bool:
        """Return true if the map of ``made`` is wrong in the version ``at``."""
        return made.constructor in self.constructors and self.dated(at) and self.applies(made)


class WrongMap(ValueError):
    """OpenDP's own map of this measurement is known to be wrong, and no truth is known."""


def release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version; a pre-release counts as its release."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))


def installed() -> str:
    """Return the version of OpenDP."""
    return version("opendp")


def _name(metric: Any) -> str:
    """Return the type of a metric, given as itself or by its name."""
    return str(getattr(metric, "type", metric))


def _ordered_in(made: Made) -> bool:
    return _name(made.fields.get("input_metric")) == "InsertDeleteDistance"


def _ordered_out(made: Made) -> bool:
    return _name(made.fields.get("MO")) == "InsertDeleteDistance"


def _of_theil_sen(made: Made) -> bool:
    return getattr(made.fields.get("function"), "__module__", "").endswith(
        "_make_private_theil_sen"
    )


def _short_groups(made: Made) -> bool:
    """Return true if a unit may have more rows in a group than a margin says that there are."""
    lengths = [each for each in map(_length, chained(made.fields["input_domain"])) if each]
    return bool(lengths) and min(lengths) < _rows(made)


def _length(made: Made) -> int | None:
    return getattr(made.fields.get("margin"), "max_length", None)


def _rows(made: Made) -> float:
    """Return the most rows of one group in which neighbours differ: of persons with identifiers, as
    many as the query keeps of each, which it says by a comparison.
    """
    d_in = made.d_in
    if isinstance(d_in, int):
        if "IdDistance" not in _name(made.fields["input_metric"]):
            return d_in
        kept = re.findall(r'"op":"Lt","right":\{"Literal":\{"Dyn":\{"Int":(\d+)', _spelled(made))
        return d_in * max(map(int, kept), default=1)
    bounds = d_in if isinstance(d_in, list | tuple) else [d_in]
    return max(float("inf") if each.per_group is None else each.per_group for each in bounds)


def _spelled(made: Made) -> str:
    """Return a Polars plan as text."""
    with warnings.catch_warnings():  # of a format that may change
        warnings.simplefilter("ignore")
        text: str = made.fields["lazyframe"].serialize(format="json")
    return text.replace(" ", "")


NOISE: Final = (
    "make_laplace", "make_gaussian", "make_geometric", "make_noise", "make_laplace_threshold",
    "make_gaussian_threshold", "make_noise_threshold", "make_private_expr",
    "make_private_lazyframe",
)  # fmt: skip

THRESHOLDS: Final = WrongCharge(
    ("make_laplace_threshold", "make_gaussian_threshold", "make_noise_threshold"),
    None,
    "a count that equals the threshold is published, and its probability is not in the delta",
    "the tail from the threshold on, in thresholds.py",
    "corrected",
    f"{_ISSUES}/2922",
)
SQUARES: Final = WrongCharge(
    ("make_sum_of_squared_deviations", "make_variance"),
    None,
    "the rounding of the mean, and of each squared deviation, is not in the sensitivity",
    "the sensitivity grows by what ``growth`` returns",
    "corrected",
    f"{_ISSUES}/2923",
)
BITS: Final = WrongCharge(
    ("make_randomized_response_bitvec",),
    "0.15.0",
    "the last bit of a report is never randomised",
    "infinite: the report is charged as not private",
    "corrected",
    f"{_ISSUES}/2707",
)
KNOWN_WRONG: Final = (
    THRESHOLDS,
    SQUARES,
    BITS,
    WrongCharge(
        NOISE,
        "0.14.2",
        "a wrong division in its number library biases all additive noise",
        "not known: install 0.14.2 or later",
        "refused",
        f"{_ISSUES}/2638",
    ),
    WrongCharge(
        ("make_metric_bounded",),
        None,
        "one row inserted and one deleted can change every place, and count as one change",
        "up to the number of rows: use an unordered metric",
        "refused",
        f"{_ISSUES}/2926",
        _ordered_in,
    ),
    WrongCharge(
        ("make_resize",),
        None,
        "rows are shuffled or cut off in dependence on their number, and count as two edits",
        "unbounded: resize to an unordered metric",
        "refused",
        f"{_ISSUES}/2927",
        _ordered_out,
    ),
    WrongCharge(
        ("make_private_lazyframe", "make_stable_lazyframe"),
        None,
        "a group of at most max_length rows counts as one in which no more than that many rows "
        "differ, though twice as many can",
        "up to twice the sensitivity: give no max_length below what a unit contributes to a group",
        "refused",
        f"{_ISSUES}/2945",
        _short_groups,
    ),
    WrongCharge(
        ("make_user_transformation",),
        None,
        "Theil-Sen regression cuts off the last row of an odd number, and counts one row as one",
        "not known",
        "refused",
        f"{_ISSUES}/2950",
        _of_theil_sen,
    ),
)
"""All that is known. What is built inside of OpenDP's own extras is not seen: of ``dp.mbi.MST`` it
is known (issue 2951) that its scores move by more than it says under zCDP."""


def made(thing: Any, d_in: Any = None) -> Made | None:
    """Return how ``thing`` was made, as OpenDP noted it for its serialisation; None if not."""
    note = getattr(thing, "__opendp_dict__", None)
    if not note or "__function__" not in note:
        return None
    return Made(note["__function__"], note.get("__kwargs__", {}), d_in)


def chained(thing: Any) -> Iterator[Made]:
    """Yield how ``thing`` was made, and all that it was made from, each once."""
    waiting, seen = [thing], set()
    while waiting:
        found = made(one := waiting.pop())
        if found is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield found
        for value in found.fields.values():
            waiting.extend(value if isinstance(value, list | tuple) else (value,))


def refuse(measurement: Any, d_in: Any, at: str | None = None, *, believed: bool = False) -> None:
    """Raise WrongMap if the measurement, or something in it, is known to say too little. Where its
    own map is ``believed``, nothing is corrected: then raise it for that as well.
    """
    at = at or installed()
    for step in chained(measurement):
        for row in KNOWN_WRONG:
            matters = believed or row.remedy == "refused"
            if matters and row.concerns(step._replace(d_in=d_in), at):
                raise WrongMap(
                    f"OpenDP {at} states too small a loss for {step.constructor}: {row.what} "
                    f"({row.source}). The truth: {row.truth}."
                )


def growth(transformation: Any) -> Fraction:
    """Return the factor by which OpenDP's stability map of sums of squares is too small, at least:
    1 for other transformations. Raise WrongMap where no bound follows.

    A mean of n floats of at most M is off by at most e = 1.01 n u M (Higham 2002, sec. 4.2, for a
    sum in any order), which adds n e^2 to the sum of squares; each square is rounded thrice, by
    3.01 u in all, in both neighbours. u is the unit roundoff.
    """
    made = (each for each in chained(transformation) if each.constructor in SQUARES.constructors)
    return max(map(_growth, made), default=Fraction(1))


_TOO_MANY: Final = 10**12


def _growth(squares: Made) -> Fraction:
    domain = squares.fields["input_domain"]
    size, bounds = domain.size, domain.element_domain.bounds
    if not size or size < 2 or size > _TOO_MANY or not bounds or bounds[0] == bounds[1]:
        raise WrongMap(
            "OpenDP's sum of squared deviations loses digits that it does not charge "
            f"({SQUARES.source}); no bound is known for {domain}"
        )
    low, high = (Fraction(each) for each in bounds)
    unit = Fraction(1, 2**24 if "f32" in str(domain.carrier_type) else 2**53)
    mean = Fraction(101, 100) * size * unit * max(abs(low), abs(high))
    span = high - low + 2 * mean
    more: Fraction = size * mean**2 + Fraction(602, 100) * size * unit * span**2
    return 1 + more / ((high - low) ** 2 * Fraction(size - 1, size))
