"""Files a report of a period: its digest becomes an event of the ledger that it is about."""

from __future__ import annotations

from hashlib import sha256

from accountant.budget.commands import Envelope, FileReport
from accountant.reporting.periods.making import AskedReport
from accountant.runtime.service import Service


def file_report(
    service: Service,
    population: str,
    asked: AskedReport,
    form: str,
    data: bytes,
    size: int,
    by: str,
) -> int:
    """Record that ``by`` files the report with the bytes ``data``, which rests on ``size`` events;
    return the sequence of the event. The same report of the same person is filed once. Raise
    Invalid while its period is not over, or StoreError.
    """
    digest = sha256(data).hexdigest()
    command = FileReport.model_validate(
        {
            "report": asked.kind,
            "dataset": asked.dataset,
            "first": asked.period.first.isoformat(),
            "last": asked.period.last.isoformat(),
            "format": form,
            "size": size,
            "digest": digest,
        }
    )
    answer = service.execute(population, Envelope(by, command, f"report-{digest}"))
    return answer.events[-1].sequence
