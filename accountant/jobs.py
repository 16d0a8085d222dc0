"""What the service does by itself: expiring grants, signing and publishing heads, keeping
snapshots, writing reports.

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
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.reporting.files import report_of, write_report
from accountant.runtime.clock import wall_clock
from accountant.runtime.clock_mark import ClockMark
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError

_log = structlog.get_logger()
_CLOCK_SECONDS: Final = 60
_SNAPSHOT_SECONDS: Final = 5
"""How often it is looked whether a ledger has grown enough."""
_ALIGNED: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Reports fall on whole intervals since then, however often the service is started again."""


def start(service: Service, publisher: Publisher, settings: Settings) -> BackgroundScheduler:
    """Starts the scheduler; the caller shuts it down."""
    scheduler = BackgroundScheduler(timezone="UTC")
    options = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
    scheduler.add_job(
        expire, "interval", [service], seconds=settings.expiry_seconds, id="expiry", **options
    )
    scheduler.add_job(
        publish,
        "interval",
        [service, publisher],
        seconds=settings.checkpoint_seconds,
        id="publish",
        **options,
    )
    scheduler.add_job(
        service.keep_snapshots, "interval", seconds=_SNAPSHOT_SECONDS, id="snapshots", **options
    )
    scheduler.add_job(
        mark_clock,
        "interval",
        [service, ClockMark(settings.home)],
        seconds=_CLOCK_SECONDS,
        id="clock",
        **options,
    )
    scheduler.add_job(
        report,
        "interval",
        [service, publisher, settings.home / "reports"],
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


def mark_clock(service: Service, mark: ClockMark) -> None:
    """Keeps what the clock shows, unless it is in doubt."""
    if service.clock_doubt() is None:
        mark.write(wall_clock())


def publish(service: Service, publisher: Publisher) -> None:
    """Signs every population's head and publishes it; finishes what erasures could not."""
    try:
        service.ledgers.finish_erasing()
    except StoreError as error:
        _log.warning("erased texts are still in the write-ahead log", reason=str(error))
    for population in _populations(service):
        try:
            publisher.publish(population)
        except (ImportError, OSError, Problem, StoreError, ValueError) as error:
            _log.error("publication failed", population=population, reason=str(error))


def report(service: Service, publisher: Publisher, folder: Path) -> None:
    """Writes every population's compliance report."""
    for population in _populations(service):
        try:
            published = publisher.last_published(population)
            paths = write_report(report_of(service, population, published), folder)
            _log.info("report written", population=population, path=str(paths["html"]))
        except (OSError, Problem, StoreError, ValueError) as error:
            _log.error("report failed", population=population, reason=str(error))


def _populations(service: Service) -> list[str]:
    try:
        return service.populations()
    except StoreError as error:  # until the next round nothing is done
        _log.error("the ledgers cannot be read", reason=str(error))
        return []
