"""What differs between a ledger as it is stored and as it comes out now, field by field.

Everything has to be equal. A later program may be held to less in two places, and only there:
``Slack.mu_squared`` and ``Slack.ties`` (README.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Final, NamedTuple

Json = dict[str, Any]
MU_SQUARED: Final = "mu_squared"
_ABSENT: Final = "(absent)"


class Difference(NamedTuple):
    """A field that is not as it was."""

    field: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.field}: expected {_short(self.expected)}, got {_short(self.got)}"


@dataclass(frozen=True)
class Slack:
    """In what a ledger may differ. ``mu_squared``: how much smaller, relatively and by one unit of
    rounding, that currency may be. ``ties``: a comparison may quote another cell that has spent as
    much, and in a union one that has spent more.
    """

    mu_squared: Fraction = Fraction(0)
    ties: bool = False


EXACT: Final = Slack()


def differences(
    expected: Any, got: Any, slack: Slack = EXACT, field: str = ""
) -> Iterator[Difference]:
    """Where ``got`` differs from ``expected``, both being JSON values."""
    if expected == got:
        return
    if isinstance(expected, dict) and isinstance(got, dict):
        for name in expected | got:
            mine, theirs = expected.get(name, _ABSENT), got.get(name, _ABSENT)
            amount = name == MU_SQUARED and not field.endswith("infinite")  # those are counts
            if not (amount and _close(mine, theirs, slack.mu_squared)):
                yield from differences(mine, theirs, slack, f"{field}.{name}" if field else name)
    elif isinstance(expected, list) and isinstance(got, list):
        for place, (mine, theirs) in enumerate(zip_longest(expected, got, fillvalue=_ABSENT)):
            yield from differences(mine, theirs, slack, f"{field}[{place}]")
    else:
        yield Difference(field, expected, got)


def in_comparisons(
    expected: list[list[Json]], got: list[list[Json]], slack: Slack, *, union: bool
) -> Iterator[Difference]:
    """Where the comparisons of a request's judgements differ; ``union``: it asks for one."""
    kept = [
        [_allowed(mine, theirs, slack, union=union) for mine, theirs in zip_longest(*pair)]
        for pair in zip_longest(expected, got, fillvalue=())
    ]
    yield from differences(expected, kept, slack, "compared")


def _allowed(expected: Any, got: Any, slack: Slack, *, union: bool) -> Any:
    """``got`` with what is stored in place of an allowed variant of it."""
    if slack == EXACT or not (isinstance(expected, dict) and isinstance(got, dict)):
        return got
    before, now = expected.get("spent", 0), got.get("spent", 0)
    alike = before == now
    if MU_SQUARED in expected.get("used", {}):  # spent along a line of mu squared
        alike |= _close(before, now, slack.mu_squared)
    more = before is not None and (now is None or now > before)
    quoted: tuple[str, ...] = ("spent",) if alike else ()
    if slack.ties and (alike or (union and more)) and expected["cell"] != got["cell"]:
        quoted = ("spent", "used", "cell")
    return got | {name: expected[name] for name in quoted if name in expected}


def _close(expected: Any, got: Any, slack: Fraction) -> bool:
    """True if amounts of mu squared, or sums of cells of it, are alike within ``slack``."""
    if isinstance(expected, list) and isinstance(got, list):
        mine, theirs = expected[:2], got[:2]  # the digest of the cells comes third
        return bool(slack) and all(_close(a, b, slack) for a, b in zip(mine, theirs, strict=False))
    if not slack or _ABSENT in (expected, got) or None in (expected, got):
        return False
    before, now = int(expected), int(got)
    return before * (1 - slack) - 1 <= now <= before


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
