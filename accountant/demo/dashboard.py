"""A dashboard: how many women call their marriage good, by education, refreshed until told to stop.

Each count concerns one group only, so each is asked for and charged to that group alone. Education
is public and fixed: a woman is in one group, so a round of six counts costs her epsilon 0.25 and
not six times that (parallel composition). Rounds do add up, because anybody can average them.
"""

from __future__ import annotations

from decimal import Decimal

from rich.console import Console
from rich.table import Table

from accountant.client import Accountant, Refused
from accountant.demo.noise import covered, laplace
from accountant.demo.survey_data import POPULATION, RATINGS, labels, load

DATASET = "marriages"
PURPOSE = "dashboard: good marriages by education"
GOOD = 1 + RATINGS.index("good")
MOST_ROUNDS = 50


def main() -> None:
    """Refreshes the dashboard until the budget says no."""
    console = Console(highlight=False)
    survey, noise = load(), laplace(scale=Decimal(4))
    good = survey.column(DATASET, "rate_marriage") >= GOOD
    truth = {group: int((good & survey.members(education=group)).sum()) for group in GROUPS}
    shown: dict[str, list[float]] = {group: [] for group in GROUPS}
    with Accountant.from_environment(POPULATION) as accountant:
        for number in range(1, MOST_ROUNDS + 1):
            try:
                flagged = 0
                for group in GROUPS:
                    with accountant.grant(
                        DATASET,
                        [noise.declaration],
                        subjects={"education": [group]},
                        purpose=PURPOSE,
                        justification=f"refresh number {number}",
                    ) as grant:
                        covered(grant.epsilon, [noise.epsilon])
                        noisy = noise.draw(float(truth[group]))
                    # Only here, after the commit, may the number be seen by anybody.
                    shown[group].append(noisy)
                    flagged += grant.outcome == "flag"
            except Refused as refused:
                console.print(f"refresh {number}: {refused.detail}")
                break
            note = f"; {flagged} grants flagged: nearly used up" if flagged else ""
            console.print(f"refresh {number}: {len(GROUPS)} counts, ε {noise.epsilon} each{note}")
    console.print("From now on the dashboard shows the last numbers that it could afford:")
    console.print(_table(shown, truth))
    console.print("(True numbers are shown only because this is a demonstration on public data.)")


GROUPS = labels("education")


def _table(shown: dict[str, list[float]], truth: dict[str, int]) -> Table:
    table = Table("education", "first refresh", "last refresh", "true")
    for column in table.columns[1:]:
        column.justify = "right"
    for group, numbers in shown.items():
        table.add_row(group, f"{numbers[0]:.1f}", f"{numbers[-1]:.1f}", str(truth[group]))
    return table


if __name__ == "__main__":
    main()
