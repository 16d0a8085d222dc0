"""A progress bar, for the commands that take long."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from accountant.cli.common import errors


class _Rate(ProgressColumn):
    """How many a second."""

    def render(self, task: Task) -> Text:
        """In words, once it is known."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


def progress() -> Progress:
    """A progress bar on standard error, gone when done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    )
