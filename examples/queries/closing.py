"""What the service says in the end, beside what the rows say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from examples.queries.results import Results

CURRENCIES: Final = {"basic": "epsilon", "zcdp": "rho"}
"""What the gates of the policies add up."""
STATED: Final = 0.05
"""The probability with which an answer is further off than its error."""


def check(results: Results) -> None:
    """Claim what has to hold of all rows together."""
    _charges(results)
    _errors(results)


def _charges(results: Results) -> None:
    dear = [row.system for row in results.rows if row.asked is not None and row.booked > row.asked]
    results.claim(
        "nothing costs more than was asked for",
        ", ".join(dear) or f"{sum(row.asked is not None for row in results.rows)} rows",
        holds=not dear,
        chance="0",
    )
    found = accounts(results)
    results.claim(
        "the service's accounts are the sums of what was booked",
        "; ".join(f"{each['account']} {each['spent']}" for each in found),
        holds=all(map(agrees, found)),
        chance="0",
    )


def accounts(results: Results) -> list[dict[str, Any]]:
    """Return each account that counts all clients, as the service shows it, with the sum of what
    was read back grant by grant: of epsilons, or for gate zcdp of rhos.
    """
    return results.accounts or _read(results)


def _read(results: Results) -> list[dict[str, Any]]:
    for ledger in (results.ledgers.patients, results.ledgers.women):
        for account in ledger.accounts().accounts:
            if account.client:
                continue
            currency = CURRENCIES[account.gate]
            booked = sum(
                (
                    each.charged[currency]
                    for each in results.booked
                    if (each.population, each.dataset) == (ledger.population, account.dataset)
                ),
                Decimal(0),
            )
            results.accounts.append({
                "account": f"{ledger.population}/{account.dataset}",
                "gate": account.gate,
                "spent": account.total.spent,
                "reserved": account.total.reserved,
                "booked": booked,
            })  # fmt: skip
    return results.accounts


def agrees(account: Mapping[str, Any]) -> bool:
    """Return whether an account is the sum of what was booked. Where losses are not simply added
    up, the account shows an epsilon that the sum does not tell: it is more than nothing then.
    """
    if account["reserved"]:
        return False
    if account["gate"] == "basic":
        return bool(account["spent"] == account["booked"])
    return bool((account["spent"] > 0) == (account["booked"] > 0))


def _errors(results: Results) -> None:
    """Each answer is further off than its 95 % error with a probability of at most 5 %, one
    independently of the other. For boosting and online weights that holds on conditions, which
    their ``how`` names; what is allowed leaves room for two more.
    """
    rows = [row for row in results.rows if row.error is not None and row.off is not None]
    beyond = [row.system for row in rows if (row.off or 0) > (row.error or 0)]
    allowed = next(k for k in range(2, len(rows) + 3) if _more_than(k - 2, len(rows)) < 1e-6)
    results.claim(
        f"at most {allowed} of {len(rows)} answers are further off than their 95 % error",
        f"{len(beyond)}{': ' if beyond else ''}{', '.join(beyond)}",
        holds=len(beyond) <= allowed,
        chance=f"{_more_than(allowed - 2, len(rows)):.0e}",
    )


def _more_than(most: int, size: int) -> float:
    """Return the probability of more than so many failures."""
    return sum(
        math.comb(size, k) * STATED**k * (1 - STATED) ** (size - k)
        for k in range(most + 1, size + 1)
    )
