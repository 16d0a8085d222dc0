"""Writes the answers of some ledgers anew, to the requests that they have:
``python tests/corpus/answers.py LEDGER …``.

Only a bound that was found wrong, or a meaning that was changed on purpose, is a reason to do
it (README.md).
"""

from __future__ import annotations

import sys

import driver
import stored
from comparing import Json


def main(names: list[str]) -> None:
    """Writes the named ledgers, such as ``clients-12``."""
    for family in sorted({name.rpartition("-")[0] for name in names}):
        ledgers = list(stored.read(family))
        stored.write(family, [anew(one) if one["name"] in names else one for one in ledgers])


def anew(ledger: Json) -> Json:
    """The ledger, with what comes of its requests now."""
    made, steps = driver.Ledger(), []
    for step in ledger["steps"]:
        found, compared = made.ask(step["ask"])
        one = {"ask": step["ask"], "found": found} | ({"compared": compared} if compared else {})
        if "totals" in step:
            one["totals"] = made.totals()
        steps.append(one)
    return ledger | {"steps": steps}


if __name__ == "__main__":
    main(sys.argv[1:])
