"""The progress bar of commands that take long."""

from __future__ import annotations

from rich import progress as bars
from rich.text import Text

from accountant.cli.common import errors


class _Rate(bars.ProgressColumn):
    def render(self, task: bars.Task) -> Text:
        """Return the items per second, or nothing while they are unknown."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


def progress() -> bars.Progress:
    """Return a progress bar on standard error, which disappears when done."""
    text, done = bars.TextColumn("{task.description}"), bars.MofNCompleteColumn()
    columns = (text, bars.BarColumn(), done, _Rate(), bars.TimeRemainingColumn())
    return bars.Progress(*columns, console=errors, transient=True)
