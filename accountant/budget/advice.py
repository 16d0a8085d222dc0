"""What would fit in place of a request that was refused: fewer invocations, more noise, a delta.

Advice is of the state that it is given, and is never recorded. Whatever it names was tried:
``evaluate`` admits the changed request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from accountant.budget.commands import AskGrant, OpenSparseVector
from accountant.budget.evaluate import evaluate, how_many
from accountant.budget.request import Costs, Request, costs_of, prepare
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.mechanisms.additive import DiscreteGaussian, Gaussian
from accountant.privacy.mechanisms.compound import Plan
from accountant.privacy.units import Charge, Currency

Advice = dict[str, Any]

_DIGITS: Final = 3
"""Significant digits of a scale."""
_DECADE: Final = 9 * 10 ** (_DIGITS - 1)
"""Scales of so many digits in a decade."""
_MOST: Final = 6 * _DECADE
"""Nobody wants more than a million times the noise."""
_MOST_DISTINCT: Final = 16
"""Different mechanisms whose noise is scaled together: each is priced at every trial."""
_SCALES: Final = ("scale", "threshold_scale", "comparison_scale", "answer_scale")


def would_fit(state: State, by: str, command: AskGrant | OpenSparseVector, now: int) -> Advice:
    """What ``by`` would be granted at stamp ``now`` in place of ``command``.

    * ``count``: the largest number of invocations of the one mechanism that is asked for;
    * ``scale``: its least noise, in three digits; a claim is left out;
    * ``times``: the same for several mechanisms, or several scales: the factor for all of them;
    * ``delta``: for Gaussian noise without one, where the limits can only count its epsilon: a
      delta to state, with the ``scale`` where that is not enough.

    Empty if something else than a limit refuses it, or nothing is found. It takes some twenty
    evaluations, and never raises.
    """
    try:
        return _Trials(state, by, command, now).advice()
    except Exception:  # noqa: BLE001 a refusal is answered whatever becomes of the advice
        return {}


def in_words(advice: Advice) -> str:
    """The same as the end of a sentence; empty if there is none."""
    parts = []
    if "count" in advice:
        parts.append(f"count {advice['count']}")
    noise = [f"delta {advice['delta']}"] if "delta" in advice else []
    noise += [f"scale {advice['scale']} or more"] if "scale" in advice else []
    noise += [f"all noise scales times {advice['times']}"] if "times" in advice else []
    parts += [" and ".join(noise)] if noise else []
    return f"it would fit now with {', or with '.join(parts)}" if parts else ""


class _Trials:
    """Requests like the one that was refused, tried on a state that stays as it is."""

    def __init__(self, state: State, by: str, command: AskGrant | OpenSparseVector, now: int):
        self._state, self._command = state, command
        self._asked = prepare(state, by, command, now)
        self._mechanisms: tuple[Mechanism, ...] = self._asked.mechanisms

    def advice(self) -> Advice:
        """All that there is."""
        blocking = [
            one for one in evaluate(self._state, self._asked).fired if one.action == "block"
        ]
        if any(one.code != LimitRule.code for one in blocking):
            return {}
        if len(self._mechanisms) > 1:
            return self._times() if blocking else {"times": "1"}
        [mechanism] = self._mechanisms
        if not blocking:  # budget has come back since
            return {"count": mechanism.count}
        return self._count(mechanism) | (self._noise(mechanism) or self._delta(mechanism))

    def _count(self, mechanism: Mechanism) -> Advice:
        """The largest count that is admitted. A count of n costs n times as much as one."""
        asked = mechanism.count
        if asked == 1 or isinstance(mechanism, Plan):  # a plan takes a second to be priced anew
            return {}
        one = costs_of(self._state, [mechanism.model_copy(update={"count": 1})])

        def admitted(count: int) -> bool:
            axis, total = one.total.axis, one.total
            units = [
                None if i else u * count for u, i in zip(total.finite, total.infinite, strict=True)
            ]
            return count == 0 or self._admits(self._costing(Charge.over(axis, units).saturated()))

        count = _last(admitted, 0, asked, how_many(self._state, self._at(one)))
        return {"count": count} if count else {}

    def _noise(self, mechanism: Mechanism) -> Advice:
        """The least noise that is admitted."""
        scales = _scales(mechanism)
        if scales != ["scale"]:
            return self._times() if scales else {}
        scale: Decimal = getattr(mechanism, "scale")  # noqa: B009 not all kinds have it
        found = self._least(scale, lambda scale: [_changed(mechanism, scale=scale)])
        return {"scale": _plain(found)} if found else {}

    def _times(self) -> Advice:
        """The least factor for all noise."""
        distinct = set(self._mechanisms)
        if len(distinct) > _MOST_DISTINCT or not all(map(_scales, distinct)):
            return {}

        def noisier(factor: Decimal) -> list[Mechanism]:
            found = {mechanism: _scaled(mechanism, factor) for mechanism in distinct}
            return [found[mechanism] for mechanism in self._mechanisms]

        found = self._least(Decimal(1), noisier)
        return {"times": _plain(found)} if found else {}

    def _least(
        self, start: Decimal, changed: Callable[[Decimal], Sequence[Mechanism]]
    ) -> Decimal | None:
        """The least of all numbers of three digits from ``start`` on that is admitted."""
        grid = _Grid.on(start)

        def refused(step: int) -> bool:
            return not self._admits(self._with(changed(grid.at(step))))

        try:
            if refused(_MOST):
                return None
        except ValidationError:  # beyond all amounts
            return None
        return grid.at(_last(refused, -1, _MOST) + 1)

    def _delta(self, mechanism: Mechanism) -> Advice:
        """A delta to state, of what is left for mechanisms' own: a tenth, if that will do."""
        if not isinstance(mechanism, Gaussian | DiscreteGaussian) or mechanism.delta is not None:
            return {}
        for share in (10, 1):
            units = self._own_delta_left() // mechanism.count // share
            delta = _rounded(Decimal(units) / Currency.DELTA.per_one, 1, ROUND_DOWN)
            if delta == 0:
                continue
            stated = _changed(mechanism, delta=delta)
            if self._admits(self._with([stated])):
                return {"delta": _plain(delta)}
            if noise := self._noise(stated):
                return {"delta": _plain(delta)} | noise
        return {}

    def _own_delta_left(self) -> int:
        """Units of own delta that all limits that block have left on the selected cells."""
        axis = self._asked.total.axis
        unit = Charge.over(axis, [int(currency == Currency.DELTA) for currency in axis])
        return how_many(self._state, self._costing(unit))

    def _admits(self, request: Request) -> bool:
        return evaluate(self._state, request).outcome != "block"

    def _with(self, mechanisms: Sequence[Mechanism]) -> Request:
        """The request for other mechanisms."""
        return self._at(costs_of(self._state, mechanisms))

    def _costing(self, charge: Charge) -> Request:
        """The request at another price of its one mechanism."""
        [priced] = self._asked.priced
        return self._at(Costs(self._mechanisms, [priced._replace(charge=charge)]))

    def _at(self, costs: Costs) -> Request:
        asked = self._asked
        return Request(asked.by, self._command, asked.selection, costs, asked.unplaced, asked.now)


class _Grid(NamedTuple):
    """Numbers of three digits, in order."""

    first: int

    @classmethod
    def on(cls, start: Decimal) -> _Grid:
        """Begins with the least number that is not below ``start``, which is above 0."""
        exponent = _rounded(start, _DIGITS, ROUND_UP).adjusted()
        digits = int(_rounded(start, _DIGITS, ROUND_UP).scaleb(_DIGITS - 1 - exponent))
        return cls(exponent * _DECADE + digits - _DECADE // 9)

    def at(self, step: int) -> Decimal:
        """The number that is ``step`` further."""
        exponent, place = divmod(self.first + step, _DECADE)
        return Decimal(place + _DECADE // 9).scaleb(exponent - _DIGITS + 1)


def _last(holds: Callable[[int], bool], low: int, high: int, guess: int | None = None) -> int:
    """The last of the numbers from ``low`` to below ``high`` for which ``holds``; it does at
    ``low``, not at ``high``, and changes once.
    """
    if guess is not None and low <= guess < high:
        if holds(guess):
            low, high = guess, high if guess + 1 < high and holds(guess + 1) else guess + 1
        else:
            high = guess
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _scales(mechanism: Mechanism) -> list[str]:
    """The fields that say how much noise there is."""
    return [name for name in _SCALES if getattr(mechanism, name, None)]


def _scaled(mechanism: Mechanism, factor: Decimal) -> Mechanism:
    """With ``factor`` times the noise."""
    wide = Context(prec=40, rounding=ROUND_UP)
    scales = {name: wide.multiply(getattr(mechanism, name), factor) for name in _scales(mechanism)}
    return _changed(mechanism, **scales)


def _changed(mechanism: Mechanism, **fields: Decimal) -> Mechanism:
    """With other fields, and without a claim: it was of the old ones."""
    body = mechanism.model_dump(exclude={"claimed"})
    claim = mechanism.claimed
    if claim is not None and claim.delta and body.get("delta", claim.delta) is None:
        body["delta"] = claim.delta  # where its epsilon was looked at
    changed: Mechanism = type(mechanism).model_validate(body | fields)
    return changed


def _rounded(value: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding).plus(value)


def _plain(value: Decimal) -> str:
    """Without an exponent, and without zeros that say nothing."""
    return format(value.normalize(), "f")
