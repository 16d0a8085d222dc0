"""Who reads a state reads it as it was, whatever is decided meanwhile."""

from __future__ import annotations

from typing import Any

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, carry_on, ledger, ops
from support import cells_of

from accountant.budget.state import State
from accountant.privacy.filters import FILTERS
from accountant.reporting.statement import accounts_json


def seen(state: State) -> dict[str, Any]:
    """All that a reader may look at, but settled grants and answered keys: they only grow."""
    accounts = {
        key: (cells_of(account.used), tuple(account.bound), tuple(account.held))
        for key, account in state.accounts.items()
    }
    names = [
        "sequence",
        "time",
        "population",
        "datasets",
        "adopted",
        "last_epoch",
        "custody",
        "revalued",
    ]
    return {
        "accounts": accounts,
        "reserved": {key: cells_of(sums) for key, sums in state.reserved().items()},
        "open": dict(state.open),
        "shown": accounts_json(state) if state.population else None,
    } | {name: getattr(state, name) for name in names}


@settings(max_examples=examples(30))
@given(st.sampled_from(sorted(FILTERS)), st.booleans(), ops, ops, ops)
def test_a_frozen_state_never_changes(
    gate: str, wide: bool, first: Ops, then: Ops, last: Ops
) -> None:
    """Cells that it shares are copied before anything is written to them, at every freezing."""
    book = ledger(gate, wide, first)
    frozen, before = [], []
    for number, more in enumerate((then, last)):
        frozen.append(book.state.frozen())
        before.append(seen(frozen[-1]))
        carry_on(book, gate, more, f"later-{number}")
        assert [seen(one) for one in frozen] == before
    assert seen(book.state.frozen()) == seen(book.state)
