"""How two policies differ, rule by rule, in the words of reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accountant.budget.decide.adopting import weakened, will_forget
from accountant.budget.policy import Policy
from accountant.budget.population.population import Population
from accountant.budget.rules.base import Rule
from accountant.reporting.words import rule_in_words


class Changed(NamedTuple):
    """A rule that was added (without ``before``), removed (without ``after``) or changed; the
    sentences say what it does. ``loosens``: two people have to agree to this.
    """

    rule: str
    before: str | None
    after: str | None
    loosens: bool

    @property
    def what(self) -> str:
        """added, removed or changed."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


def differences(old: Policy, new: Policy, people: Population | None = None) -> Iterator[Changed]:
    """Yield the rules that differ, those of the new policy in its order, then those removed. Rules
    that have only moved in the list do the same, and are left out. ``people``: who is protected.
    """
    before = {rule.id: rule for rule in old.rules}
    after = {rule.id: rule for rule in new.rules}
    for name in (*after, *(name for name in before if name not in after)):
        was, now = before.get(name), after.get(name)
        if was != now:
            yield Changed(
                name,
                None if was is None else rule_in_words(was, people),
                None if now is None else rule_in_words(now, people),
                loosens=_loosens(was, now),
            )


def _loosens(was: Rule | None, now: Rule | None) -> bool:
    forgets = now is not None and will_forget(was, now)
    return forgets or weakened(was, now) is not None
