"""Advice on a refused request: fewer invocations, more noise, or a delta, with which it would fit.

Advice is of the given state and is never recorded. Every request that it names was tried:
``evaluate`` admits it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_DOWN, ROUND_UP, Context, Decimal
from typing import Any, Final

from msgspec.structs import replace
from pydantic import ValidationError

from accountant.budget.commands import AskGrant, OpenSparseVector
from accountant.budget.evaluate import evaluate, how_many
from accountant.budget.request import Costs, Request, costs_on, prepare, terms_of
from accountant.budget.rises import (
    fits_after,
    fits_from,
    least_that,
)
from accountant.budget.rules.base import (
    Compared,
)
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State
from accountant.ledger.events import rfc3339
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.mechanisms.additive import DiscreteGaussian, Gaussian
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.plan import Plan
from accountant.privacy.mechanisms.tuning import RepeatAndSelect
from accountant.privacy.units import Charge, Currency

Advice = dict[str, Any]

_MIDNIGHT: Final = "T00:00:00.000000Z"
_DIGITS: Final = 3
"""Significant digits of a scale."""
_FIRST: Final = 10 ** (_DIGITS - 1)
_DECADE: Final = 9 * _FIRST
"""Scales of so many digits in a decade."""
_MOST: Final = 6 * _DECADE
"""Steps to a million times the noise, beyond which no scale is tried."""
_MOST_DISTINCT: Final = 16
"""Different mechanisms whose noise is scaled together: each is priced at every trial."""
_WIDE: Final = Context(prec=40, rounding=ROUND_UP)
_SCALES: Final = ("scale", "threshold_scale", "comparison_scale", "answer_scale")


def would_fit(state: State, by: str, command: AskGrant | OpenSparseVector, now: int) -> Advice:
    """Return changes with which ``command`` of ``by`` would be granted at stamp ``now``.

    * ``count``: the largest number of invocations, for a single mechanism;
    * ``scale``: its least noise, in three digits; a claim is left out;
    * ``times``: the same for several mechanisms, or several scales: the factor for all of them;
    * ``delta``: for Gaussian noise without one, where the limits can only count its epsilon, or
      with a larger one than the limits keep: a delta to state, with the ``scale`` where that is not
      enough.

    * ``from``: the stamp from which it would fit as it is, by time alone;
    * ``requests``: after how many more requests for its cells it would, where these unlock a limit.

    Empty if something else than a limit refuses it, or nothing is found. It takes some twenty
    evaluations, and never raises.
    """
    try:
        return _Trials(state, command, prepare(state, by, command, now)).advice()
    except Exception:  # noqa: BLE001 a refusal is answered whatever becomes of the advice
        return {}


def most_that_fits(state: State, command: AskGrant, request: Request) -> int:
    """Return the largest count, up to the one asked for, with which ``command``, a request of one
    mechanism that was prepared as ``request``, would be granted; 0 if there is none, or only limits
    are not what refuses it. Raises Problem for a request that is malformed for this ledger.
    """
    count: int = _Trials(state, command, request).advice_on_count().get("count", 0)
    return count


def in_words(advice: Advice) -> str:
    """Return the advice as the end of a sentence; empty if there is none."""
    parts = [f"count {advice['count']}"] if "count" in advice else []
    noise = [f"delta {advice['delta']}"] if "delta" in advice else []
    noise += [f"scale {advice['scale']} or more"] if "scale" in advice else []
    noise += [f"all noise scales times {advice['times']}"] if "times" in advice else []
    parts += [" and ".join(noise)] if noise else []
    now = [f"it would fit now with {', or with '.join(parts)}"] if parts else []
    if "from" in advice:
        stamp = advice["from"]
        now.append(f"as it is it fits from {stamp[:10] if stamp[10:] == _MIDNIGHT else stamp}")
    if "requests" in advice:
        now.append(
            f"as it is it fits after {advice['requests']} more requests for these cells, of which "
            "to ask again is one"
        )
    return "; ".join(now)


class _Trials:
    """Requests like the one that was refused, tried on a state that stays as it is."""

    def __init__(self, state: State, command: AskGrant | OpenSparseVector, asked: Request):
        self._state, self._command, self._terms = state, command, terms_of(state)
        self._asked = asked
        self._mechanisms: tuple[Mechanism, ...] = self._asked.mechanisms

    def advice(self) -> Advice:
        """Return all advice on the request."""
        blocking = self._blocking()
        if any(one.code != LimitRule.code for one in blocking):
            return {}
        if len(self._mechanisms) > 1:
            return (self._times() | self._later()) if blocking else {"times": "1"}
        [mechanism] = self._mechanisms
        if not blocking:  # budget has come back since
            return {"count": mechanism.count}
        now = self._count(mechanism) | (self._noise(mechanism) or self._delta(mechanism))
        return now | self._later()

    def _later(self) -> Advice:
        """Find when it would fit as it is, by time alone or by further requests."""
        found: Advice = {}
        if (stamp := fits_from(self._state, self._asked)) is not None:
            found["from"] = rfc3339(stamp)
        if (more := fits_after(self._state, self._asked)) is not None:
            found["requests"] = more
        return found

    def advice_on_count(self) -> Advice:
        """Return advice on the count alone of a request of one mechanism: the most that is granted,
        and that no person has to approve.
        """
        if any(one.code != LimitRule.code and one.action == "block" for one in self._blocking()):
            return {}
        [mechanism] = self._mechanisms
        return self._count(mechanism)

    def _blocking(self) -> list[Compared]:
        return evaluate(self._state, self._asked).holding

    def _count(self, mechanism: Mechanism) -> Advice:
        """Find the largest count that is admitted. A count of n costs n times as much as one."""
        asked = mechanism.count
        if asked == 1 or isinstance(mechanism, Plan):  # pricing a plan anew takes a second
            return {}
        one = costs_on(self._terms, [mechanism.model_copy(update={"count": 1})])
        [priced] = one.priced

        def refused(count: int) -> bool:
            per = tuple(_times(each, count) for each in priced.per)
            many = replace(priced, charge=_times(priced.charge, count), per=per)
            return not self._admits(self._asked.costs.at([many]))

        guess = how_many(self._state, self._at(one))
        if not 0 < guess < asked or refused(guess) or not refused(guess + 1):
            guess = least_that(refused, 1, asked) - 1
        return {"count": guess} if guess else {}

    def _noise(self, mechanism: Mechanism) -> Advice:
        """Find the least noise that is admitted."""
        if _scales(mechanism) != ["scale"]:
            return self._times()
        scale: Decimal = getattr(mechanism, "scale")  # noqa: B009 not all kinds have it
        found = self._least(scale, lambda scale: [_changed(mechanism, scale=scale)])
        return {"scale": _plain(found)} if found else {}

    def _times(self) -> Advice:
        """Find the least factor for all noise."""
        distinct = set(self._mechanisms)
        if len(distinct) > _MOST_DISTINCT or not all(map(_is_noisy, distinct)):
            return {}

        def noisier(factor: Decimal) -> list[Mechanism]:
            found = {one: _noisier(one, factor) for one in distinct}
            return [found[mechanism] for mechanism in self._mechanisms]

        found = self._least(Decimal(1), noisier)
        return {"times": _plain(found)} if found else {}

    def _least(
        self, start: Decimal, changed: Callable[[Decimal], Sequence[Mechanism]]
    ) -> Decimal | None:
        """Find the least number of three digits from ``start`` on that is admitted."""
        first = _step_of(start)

        def admitted(step: int) -> bool:
            return self._admits(costs_on(self._terms, changed(_number_at(step))))

        try:
            if not admitted(first + _MOST):
                return None
        except ValidationError:  # beyond all amounts
            return None
        return _number_at(least_that(admitted, first, first + _MOST))

    def _delta(self, mechanism: Mechanism) -> Advice:
        """Find a delta to state: a tenth of the rest for mechanisms' own, if that will do."""
        if not isinstance(mechanism, Gaussian | DiscreteGaussian):
            return {}
        axis = self._asked.total.axis
        unit = Charge.over(axis, [int(currency == Currency.DELTA) for currency in axis])
        left = how_many(self._state, self._at(self._priced_at(unit)))  # under all limits
        for share in (10, 1):
            units = Decimal(left // mechanism.count // share)
            delta = _rounded(units / Currency.DELTA.per_one, 1, ROUND_DOWN)
            if delta == 0 or (mechanism.delta is not None and delta >= mechanism.delta):
                continue
            stated = _changed(mechanism, delta=delta)
            if self._admits(costs_on(self._terms, [stated])):
                return {"delta": _plain(delta)}
            if noise := self._noise(stated):
                return {"delta": _plain(delta)} | noise
        return {}

    def _admits(self, costs: Costs) -> bool:
        return evaluate(self._state, self._at(costs)).granted

    def _priced_at(self, charge: Charge) -> Costs:
        """Return the costs at another price of the one mechanism."""
        [priced] = self._asked.priced
        return self._asked.costs.at([replace(priced, charge=charge, per=())])

    def _at(self, costs: Costs) -> Request:
        """Return the request at other costs."""
        asked = self._asked
        rest = asked.unplaced, asked.now, asked.on
        return Request(asked.by, self._command, asked.selection, costs, *rest)


def _times(charge: Charge, count: int) -> Charge:
    """Return the charge of so many invocations."""
    each = zip(charge.finite, charge.infinite, strict=True)
    units = [None if infinite else units * count for units, infinite in each]
    return Charge.over(charge.axis, units).saturated()


def _step_of(least: Decimal) -> int:
    """Return the place of the least number of three digits that is not below ``least`` > 0."""
    rounded = _rounded(least, _DIGITS, ROUND_UP)
    exponent = rounded.adjusted()
    return exponent * _DECADE + int(rounded.scaleb(_DIGITS - 1 - exponent)) - _FIRST


def _number_at(step: int) -> Decimal:
    """Return the number at a place in the order of all numbers of three digits."""
    exponent, place = divmod(step, _DECADE)
    return Decimal(place + _FIRST).scaleb(exponent - _DIGITS + 1)


def _scales(mechanism: Mechanism) -> list[str]:
    """Return the fields that state how much noise there is."""
    return [name for name in _SCALES if getattr(mechanism, name, None)]


def _is_noisy(mechanism: Any) -> bool:
    """Return true if all that is in it states its noise."""
    match mechanism:
        case RepeatAndSelect():
            return _is_noisy(mechanism.mechanism)
        case Composed():
            return all(map(_is_noisy, mechanism.mechanisms))
    return bool(_scales(mechanism))


def _noisier(mechanism: Any, factor: Decimal) -> Mechanism:
    """Return the mechanism with all noise times ``factor``."""
    match mechanism:
        case RepeatAndSelect():
            inner: Any = _noisier(mechanism.mechanism, factor).model_dump()
            return _changed(mechanism, mechanism=inner)
        case Composed():
            parts: Any = [_noisier(one, factor).model_dump() for one in mechanism.mechanisms]
            return _changed(mechanism, mechanisms=parts)
    scales = {name: _WIDE.multiply(getattr(mechanism, name), factor) for name in _scales(mechanism)}
    return _changed(mechanism, **scales)


def _changed(mechanism: Mechanism, /, **fields: Any) -> Mechanism:
    """Return the mechanism with other fields, without its claim, which was about the old ones."""
    body = mechanism.model_dump(exclude={"claimed"})
    claim = mechanism.claimed
    if claim is not None and claim.delta and body.get("delta", claim.delta) is None:
        body["delta"] = claim.delta  # at which its epsilon was looked up
    changed: Mechanism = type(mechanism).model_validate(body | fields)
    return changed


def _rounded(value: Decimal, digits: int, rounding: str) -> Decimal:
    return Context(prec=digits, rounding=rounding).plus(value)


def _plain(value: Decimal) -> str:
    """Return a number without an exponent and without trailing zeros."""
    return format(value.normalize(), "f")
