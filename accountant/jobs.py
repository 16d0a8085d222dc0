"""What the service does by itself: expiring grants, writing reports.

Jobs live in code, and each may run twice or in two processes at once: an expiry is an event like
any other, a report is a file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from accountant.budget.errors import Problem
from accountant.reporting.files import write_report
from accountant.service import Service
from accountant.settings import Settings
from accountant.store.ledgers import StoreError

_log = structlog.get_logger()
_ALIGNED: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Reports fall on whole intervals since then, however often the service is started again."""


def start(service: Service, settings: Settings) -> BackgroundScheduler:
    """Starts the scheduler; the caller shuts it down."""
    scheduler = BackgroundScheduler(timezone="UTC")
    options = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
    scheduler.add_job(
        expire, "interval", [service], seconds=settings.expiry_seconds, id="expiry", **options
    )
    scheduler.add_job(
        report,
        "interval",
        [service, settings.home / "reports"],
        hours=settings.report_hours,
        start_date=_ALIGNED,
        id="report",
        **options,
    )
    scheduler.start()
    return scheduler


def expire(service: Service) -> None:
    """Charges the grants whose time has passed."""
    try:
        if expired := service.expire_due():
            _log.info("grants expired and charged", grants=expired)
    except (Problem, StoreError) as error:  # until the next round they stay reserved
        _log.warning("expiry failed", reason=str(error))


def report(service: Service, folder: Path) -> None:
    """Writes every population's compliance report."""
    for population in service.populations():
        try:
            paths = write_report(service, population, folder)
            _log.info("report written", population=population, path=str(paths["html"]))
        except (OSError, Problem, StoreError, ValueError) as error:
            _log.error("report failed", population=population, reason=str(error))
