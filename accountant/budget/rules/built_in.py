"""Rules that no policy states: they hold in every ledger, and stand before all others.

Their ids begin with ``built-in:``. (No policy's rule id contains a colon.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from accountant.budget.rules.base import Action, Compared, Finding
from accountant.privacy.mechanisms import Verdict

if TYPE_CHECKING:
    from accountant.budget.accounts.epochs import Adopted
    from accountant.budget.population.population import Dataset
    from accountant.budget.request import Request

BUILT_IN: Final = "built-in:"
_MEMBERSHIP: Final = (
    "membership in groups is private here, so {} can charge a group only if it is stated under "
    "add_or_remove_one; state it so, or ask for everyone"
)
_NO_POLICY: Final = (
    "no policy is adopted, so nothing says how much may be spent; "
    "adopt one with PUT /v1/populations/{}/policy"
)
_NO_LIMIT: Final = "no limit of policy {!r} covers dataset {}; add a rule with a limit that does"
_CLAIM: Final = "the loss of {} is the client's word; nothing that was stated lets it be derived"


def findings(
    request: Request, adopted: Adopted | None, ledger: str, datasets: Iterable[Dataset]
) -> Iterator[Finding]:
    """Yield the objections to the request itself, as text. ``datasets`` are all that it is charged
    to, as they are registered.
    """
    for mechanism, priced in zip(request.mechanisms, request.priced, strict=True):
        for objection in priced.objections:
            yield _fired(objection.code, "block", objection.text)
        for text in priced.loose:
            yield _fired("sensitivities-apart", "flag", text)
        if priced.verdict is Verdict.UNVERIFIABLE:
            yield _fired("unverifiable-claim", "flag", _CLAIM.format(mechanism.kind))
    for kind in request.unplaced:
        yield _fired("private-membership", "block", _MEMBERSHIP.format(kind))
    if adopted is None:
        yield _fired("no-policy", "block", _NO_POLICY.format(ledger))
    elif open_ones := [one.id for one in datasets if not adopted.guards(one)]:
        text = _NO_LIMIT.format(adopted.policy.policy, ", ".join(map(repr, open_ones)))
        yield _fired("no-limit", "block", text)


def compare(
    request: Request, adopted: Adopted | None, ledger: str, datasets: Iterable[Dataset]
) -> list[Compared]:
    """Compare without text."""
    return [Compared(*found[:4]) for found in findings(request, adopted, ledger, datasets)]


def _fired(code: str, action: Action, text: str) -> Finding:
    return Finding(BUILT_IN + code, action, True, code, text)
