"""The ledger that docs/evidence.md shows: ``python tests/evidence/documented.py`` prints its events
and test vectors as they stand there.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import SECOND, Book, gaussian, laplace, make

from accountant.auditing.totals import totals_of
from accountant.budget.commands import Envelope
from accountant.budget.sealing import Opened, seal
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.privacy.filters import FILTERS, Limit
from accountant.privacy.units import decimal_of

SALT = bytes(range(32))
PURPOSE = "waiting times by sex"
RULES = """
  - {id: patients, limit: {epsilon: 1, delta: 1e-6}, gate: zcdp}
  - {id: nearly, of: patients, at: 80%}
"""
WIDTH = 118


def ledger() -> Book:
    """A population, a dataset, a policy; a grant, a part of which is run; one that is refused; and
    a batch.
    """
    book = Book("hospital", now=1_790_000_000 * SECOND)
    book.register({"sex": ["f", "m"]}, neighbouring="add_or_remove_one")
    book.do("register_dataset", "admin", id="visits", namespace="hospital", name="visits-2026")
    book.policy(RULES)
    two = [laplace("0.125", count=2), gaussian("0.0625", "1e-9")]
    fields: dict[str, Any] = {"dataset": "visits", "mechanisms": two, "subjects": {"sex": ["f"]}}
    wanted = Envelope("survey", make("ask_grant", purpose=PURPOSE, **fields), "run-7")
    asked, _ = seal(book.state, wanted, lambda: SALT)
    book.now += SECOND
    book.ask(asked.command, "survey", "run-7")
    book.now += 90 * SECOND
    book.do("commit_grant", "survey", grant="g4", mechanisms=[laplace("0.125"), two[1]])
    book.now += SECOND
    book.do("ask_grant", "survey", "run-8", dataset="visits", mechanisms=[laplace("0.75")])
    more = make("ask_grant", dataset="visits", mechanisms=[laplace("0.5")], ttl_seconds=600)
    book.now += SECOND
    book.batch(more, make("release_grant", grant="g8", reason=" "), by="survey", key="run-9")
    return book


SUMS = [
    ("renyi", None, (10**14, 7 * 10**13)),
    ("renyi", 3 * 10**8, (10**14, 7 * 10**13)),
    ("renyi", None, (None, 7 * 10**13)),
    ("zcdp", None, (10**13,)),
    ("advanced", None, (10**13,)),
    ("gdp", None, (10**13,)),
    ("gdp", None, (5 * 10**13,)),
    ("basic", 123_456_789, ()),
]
"""Sums of epsilons and in a gate's own currencies; None is infinite."""


def spent() -> list[tuple[str, ...]]:
    """Rows: gate, order, sum of epsilons, sum in its own currency, capacity, epsilon spent."""
    limit, found = Limit(Fraction(1), Fraction("1e-6"), Fraction("1e-7")), []
    for name, epsilon, along in SUMS:
        gate = FILTERS[name]
        columns = [
            [decimal_of(line.order) for line in gate.lines(limit)],
            [epsilon],
            along,
            gate.capacity(limit).along,
            [gate.spent(limit, epsilon, along)],
        ]
        found.append((name, *map(_listed, columns)))
    return found


def _listed(values: Sequence[object]) -> str:
    return ", ".join("infinite" if v is None else str(v) for v in values) or "-"


def text_line() -> dict[str, Any]:
    """The line of the text that event 4 sealed."""
    return {"field": "purpose", "salt": SALT.hex(), "sequence": 4, "text": PURPOSE}


def shown(value: Any, indent: int = 0) -> str:
    """JSON in lines that are not too long."""
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(flat) + indent <= WIDTH - 20 * (not indent) or not isinstance(value, dict | list):
        return flat
    pad = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        inside = [f"{json.dumps(name)}: {shown(value[name], indent + 1)}" for name in sorted(value)]
        return "{" + pad.strip("\n ") + (f",{pad}").join(inside) + "}"
    return "[" + (f",{pad}").join(shown(each, indent + 1) for each in value) + "]"


def main() -> None:
    """Prints everything."""
    book = ledger()
    for body in book.stored:
        print(f"```json\n{shown(json.loads(body))}\n```\n")  # noqa: T201 the purpose
    leaves = list(map(leaf_hash, book.stored))
    for sequence, (body, leaf) in enumerate(zip(book.stored, leaves, strict=True)):
        print(f"| {sequence} | {len(body)} | `{leaf.hex()}` |")  # noqa: T201
    print(Tree().grown(leaves)[0].root.hex())  # noqa: T201
    print(shown(json.loads(totals_of(book.state))))  # noqa: T201
    for row in spent():
        print("| " + " | ".join(row) + " |")  # noqa: T201
    print(Opened(SALT, PURPOSE).digest, hashlib.sha256(SALT + PURPOSE.encode()).hexdigest())  # noqa: T201


if __name__ == "__main__":
    main()
