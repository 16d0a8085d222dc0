"""The tables of the page on choosing epsilon."""

from __future__ import annotations

import math
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/how-to/choose-epsilon.md").read_text()


def table(first: str) -> list[list[str]]:
    """The rows of the table whose head begins with a word, the head first."""
    lines = PAGE.split(f"| {first}")[1].split("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in f"| {first}{lines}".splitlines()]
    return [rows[0], *rows[2:]]


def number(text: str) -> float:
    """The number in a cell."""
    return float(text.replace("%", "").replace("ε", "").replace(",", ""))


def test_beliefs_are_those_of_the_formula() -> None:
    """Each cell is p e^epsilon / (1 - p + p e^epsilon), to its last digit."""
    head, *rows = table("before")
    for before, *cells in rows:
        p = number(before) / 100
        for epsilon, cell in zip(head[1:], cells, strict=True):
            e = math.exp(number(epsilon))
            digits = len(cell.removesuffix(" %").partition(".")[2])
            assert round(100 * p * e / (1 - p + p * e), digits) == number(cell)


def test_errors_are_the_quantiles_of_laplace_noise() -> None:
    """95 of 100 answers are within ln(20) / epsilon, which the page rounds to 3 / epsilon."""
    _, *rows = table("ε")
    for epsilon, within, share in rows:
        error = math.log(20) / number(epsilon)
        assert abs(number(within) - error) < 0.05 * max(1, error / 30)
        assert abs(number(share) - error / 10) < 0.05 * max(1, error / 30)
