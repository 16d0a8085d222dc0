"""diffprivlib; cannot see which tool draws what noise, only the (epsilon, delta) that it states.

::

    from accountant.adapters.diffprivlib import LedgerAccountant

    with LedgerAccountant(ledger, "visits", purpose="weekly dashboard"):
        noisy = diffprivlib.tools.mean(ages, epsilon=0.5, bounds=(0, 120))

A tool checks with its accountant before it draws and spends afterwards: ``check`` asks for a grant,
``spend`` commits it. A refusal comes before any noise, and leaves the accountant as it was. What is
recorded is ``declared``, on the library's word, and flagged as not verifiable.

The library states some costs for a record that is there or not (counts and histograms), others for
one that is replaced (means, sums, variances). Both are true of a record that is there or not where
the population is replace_one and twice the epsilon is charged, which is the default here; pass
``neighbouring="replace_one"`` for tools of the second sort only.
"""

from __future__ import annotations

from typing import Any, Final, Self, Unpack

from accountant.adapters.libraries import Fields, needs, only, sampler
from accountant.client import Client, Grant, declared
from accountant.client.calls import Datasets

with needs("diffprivlib"):
    from diffprivlib import BudgetAccountant

_ANYTHING: Final = float("inf")


class LedgerAccountant(BudgetAccountant):  # type: ignore[misc]
    """A budget accountant of diffprivlib that asks the service before each tool, and reports after.

    ``epsilon``, ``delta``, ``slack`` and ``spent_budget`` are diffprivlib's own: a ceiling of this
    process, which is checked before the service is asked; what was spent before is not reported
    again. The rest are the fields of a request.

    A tool that fails after its check is charged: it may have drawn. So is a ``check`` by hand; ask
    ``remaining`` instead, or the client for a preview. As a context manager it is the default
    accountant of the block, and settles when the block ends; outside of one, a grant that no
    ``spend`` has followed expires, and is charged. Copies, as scikit-learn makes of a model's
    parameters, are the accountant itself. Not thread-safe.
    """

    def __init__(
        self,
        ledger: Client,
        dataset: Datasets,
        *,
        epsilon: float = _ANYTHING,
        delta: float = 1.0,
        slack: float = 0.0,
        spent_budget: list[tuple[float, float]] | None = None,
        neighbouring: str = "add_or_remove_one",
        **fields: Unpack[Fields],
    ) -> None:
        only(fields)
        self._ledger_client, self._dataset, self._fields = ledger, dataset, fields
        self._neighbouring = neighbouring
        self._open: tuple[Grant, float, float] | None = None
        self._spending = True  # what was spent before this accountant was made
        super().__init__(epsilon, delta, slack, spent_budget)
        self._spending = False

    def check(self, epsilon: float, delta: float) -> bool:
        """Reserve the cost that a tool is about to have. Raise BudgetError by diffprivlib's own
        ceiling, before anything is asked, or Refused.
        """
        super().check(epsilon, delta)
        if not self._spending:
            self.settle()
            stated = [self._stated(epsilon, delta)]
            grant = self._ledger_client.grant(self._dataset, stated, **self._fields)
            self._open = grant, epsilon, delta
        return True

    def spend(self, epsilon: float, delta: float) -> Self:
        """Commit what was checked. What a tool spends without a check has run: it is recorded."""
        spending, self._spending = self._spending, True
        try:
            super().spend(epsilon, delta)
        finally:
            self._spending = spending
        if spending:
            return self
        if self._open is not None and self._open[1:] == (epsilon, delta):
            self.settle()
        else:
            self._ledger_client.record(
                self._dataset, [self._stated(epsilon, delta)], **_of_a_record(self._fields)
            )
        return self

    def settle(self) -> None:
        """Commit the grant that is open, if there is one. If that fails it stays open."""
        if self._open is not None:
            self._open[0].__exit__(None, None, None)
        self._open = None

    def _stated(self, epsilon: float, delta: float) -> dict[str, Any]:
        stated = {"neighbouring": self._neighbouring, "sampler": sampler("diffprivlib")}
        return declared(epsilon=epsilon, delta=delta or None, **stated)  # type: ignore[arg-type]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.settle()

    def __deepcopy__(self, _: Any) -> Self:
        return self

    def __copy__(self) -> Self:
        return self


def _of_a_record(fields: Fields) -> dict[str, Any]:
    """Return the fields without that of a reservation."""
    return {name: value for name, value in fields.items() if name != "ttl_seconds"}
