"""Files a report of a period: its digest becomes an event of the ledger that it is about."""

from __future__ import annotations

from hashlib import sha256

from accountant.budget.commands import Envelope, FileReport
from accountant.budget.errors import Conflict, Invalid
from accountant.reporting.making import Made
from accountant.reporting.periods.making import AskedReport
from accountant.runtime.service import Answer, Service


def file_report(
    service: Service,
    population: str,
    asked: AskedReport,
    form: str,
    made: Made,
    by: str,
    read: str | None = None,
) -> Answer:
    """Record that ``by`` files a report as it was ``made``, of which they have ``read`` one with
    this digest. The same report of the same person is filed once. Raise Invalid while its period is
    not over, Conflict if another one was read, or StoreError.
    """
    digest = digest_of(made)
    if read is not None and read != digest:
        raise Conflict(
            "report-differs",
            f"the report has the digest {digest} now, and {read} was read: a text was erased "
            "since, or a checkpoint published, or its period is not over. Read it again",
            digest=digest,
        )
    command = FileReport.model_validate(
        {
            "report": asked.kind,
            "dataset": asked.dataset,
            "first": asked.period.first.isoformat(),
            "last": asked.period.last.isoformat(),
            "format": form,
            "size": made.events,
            "digest": digest,
        }
    )
    return service.execute(population, Envelope(by, command, f"report-{digest}"))


def check_over(asked: AskedReport) -> None:
    """Raise Invalid unless the period of a report is over, as the ledger asks of what is filed."""
    if asked.now < asked.period.end:
        raise Invalid(
            "unknown-report",
            f"a report is filed once its period is over, and {asked.period.last.isoformat()} is "
            "not: file it later",
        )


def digest_of(made: Made) -> str:
    """Return the digest of a report's bytes, in hex."""
    return sha256(made.data).hexdigest()
