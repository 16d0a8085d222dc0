"""How a limit unlocks gradually: with time, or with each request that asks for a cell.

After PrivateKube (Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer, "Privacy Budget Scheduling", OSDI
2021): ``over`` is its DPF-T, ``per_request`` its DPF-N with N requests to a whole budget. The first
to come cannot take all, and a fair share waits for those who come later. It only tightens: never
more is admitted than without it. So it promises nothing about the data beyond what the limit does.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from accountant.budget.accounts.spans import Window
from accountant.budget.rules.base import Strict

_SHARE: Final = re.compile(r"(?:[1-9]\d{0,5}/)?[1-9]\d{0,5}|0?\.\d{1,6}", re.ASCII)


class Unlock(Strict):
    """The share of a limit that may be used grows from nothing to all of it."""

    over: str | None = Field(
        None,
        description="30d or 12h: it grows evenly over so long, on each cell from its beginning",
    )
    per_request: Annotated[str, Field(max_length=13)] | None = Field(
        None, description="1/100 or 0.01: the share that each request for a cell unlocks there"
    )

    @field_validator("over")
    @classmethod
    def _known(cls, text: str | None) -> str | None:
        if text is not None and Window.read(text).calendar:
            raise ValueError(f"{text!r} is no span to unlock over: say 30d or 12h")
        return text

    @field_validator("per_request")
    @classmethod
    def _a_share(cls, text: str | None) -> str | None:
        if text is not None and not (_SHARE.fullmatch(text) and 0 < Fraction(text) <= 1):
            raise ValueError(f"{text!r} is no share above 0, up to 1: say 1/100 or 0.01")
        return text

    @model_validator(mode="after")
    def _one_way(self) -> Unlock:
        if (self.over is None) == (self.per_request is None):
            raise ValueError("a limit unlocks over a span, or per request: say one of them")
        return self

    @cached_property
    def length(self) -> int:
        """The microseconds that it takes; 0 if it unlocks per request."""
        return 0 if self.over is None else Window.read(self.over).length

    @cached_property
    def share(self) -> Fraction:
        """The share that a request unlocks; 0 if it unlocks over a span."""
        return Fraction(self.per_request or 0)

    def no_faster_than(self, other: Unlock) -> bool:
        """Return whether it has surely unlocked no more than ``other`` at any time."""
        if self.over is not None:
            return other.over is not None and self.length >= other.length
        return other.over is None and self.share <= other.share

    @property
    def words(self) -> str:
        """How it unlocks, as the end of a sentence."""
        if self.over is not None:
            return f"evenly over {Window.read(self.over).words}"
        return f"by {self.per_request} with each request for a cell"
