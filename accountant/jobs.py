"""The jobs that a running service repeats: expire grants, sign and publish heads, write snapshots
and reports, mark the clock, note which keys were used, and tell what became of requests that waited
and what needs somebody.

Several processes may run the same job at once without harm.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from apscheduler.schedulers.background import BackgroundScheduler

from accountant.budget.errors import Problem
from accountant.config.logs import logger
from accountant.config.settings import Settings
from accountant.privacy.mechanisms import warm
from accountant.publishing.publisher import Publisher
from accountant.reporting.desk import Desk
from accountant.reporting.files import FORMATS, write_whole
from accountant.reporting.making import About, report_texts
from accountant.runtime.clock import ClockMark, wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError

if TYPE_CHECKING:
    from accountant.notifying.alerting import Alerting

_log = logger()
_CLOCK_SECONDS: Final = 60
_KEY_SECONDS: Final = 60
_BETWEEN: Final = 0.01  # Seconds between two kinds of mechanisms that are made ready
_SNAPSHOT_SECONDS: Final = 5
"""How often ledgers are checked for enough growth."""
_ALIGNED: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Reports are due at whole intervals after this moment, independent of restarts."""


def start(
    service: Service, publisher: Publisher, settings: Settings, desk: Desk
) -> BackgroundScheduler:
    """Start the scheduler; ``desk`` makes its reports. The caller shuts it down."""
    mark, folder = ClockMark(settings.home), settings.home / "reports"
    hours: dict[str, Any] = {"hours": settings.report_hours, "start_date": _ALIGNED}
    missed = {"coalesce": True, "misfire_grace_time": None}
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults=missed)
    for name, job, arguments, interval in (
        ("expiry", expire, [service], {"seconds": settings.expiry_seconds}),
        ("publish", publish, [service, publisher], {"seconds": settings.checkpoint_seconds}),
        ("snapshots", service.keep_snapshots, [], {"seconds": _SNAPSHOT_SECONDS}),
        ("clock", mark_clock, [service, mark], {"seconds": _CLOCK_SECONDS}),
        ("keys", note_uses, [service], {"seconds": _KEY_SECONDS}),
        ("report", report, [service, publisher, folder, desk], hours),
    ):
        scheduler.add_job(job, "interval", arguments, id=name, **interval)
    if service.callbacks:
        from accountant.notifying.callbacks import Callbacks, send  # noqa: PLC0415 few have any
        from accountant.notifying.webhook import secret_of  # noqa: PLC0415

        sender = Callbacks(service, service.callbacks, secret_of(settings.callback_secret))
        seconds = settings.callback_seconds
        scheduler.add_job(send, "interval", [sender], id="callbacks", seconds=seconds)
    scheduler.add_job(warm_prices, id="prices")  # once, as soon as the scheduler runs
    scheduler.start()
    return scheduler


def warm_prices() -> None:
    """Make all kinds of mechanisms ready, so that no request is the first of its kind. Whatever is
    asked meanwhile is answered between two kinds.
    """
    for _ in warm():
        time.sleep(_BETWEEN)


def tell_alerts(scheduler: BackgroundScheduler, alerting: Alerting, seconds: float) -> None:
    """Look for what is worth an alert from now on, and send it."""
    from accountant.notifying.alerting import tell  # noqa: PLC0415 few have any

    scheduler.add_job(tell, "interval", [alerting], id="alerts", seconds=seconds)


def expire(service: Service) -> None:
    """Charge the grants whose time has passed."""
    try:
        if expired := service.expire_due():
            _log.info("grants expired and charged", grants=expired)
    except (Problem, StoreError) as error:  # they stay reserved until the next run
        _log.warning("expiry failed", reason=str(error))


def mark_clock(service: Service, mark: ClockMark) -> None:
    """Record the clock's time unless the clock is in doubt."""
    if service.clock_doubt() is None:
        mark.write(wall_clock())


def note_uses(service: Service) -> None:
    """Write down which keys were used."""
    try:
        service.credentials.note_uses()
    except StoreError as error:  # the next run writes them, too
        _log.warning("the use of keys was not noted", reason=str(error))


def publish(service: Service, publisher: Publisher) -> None:
    """Sign and publish every population's head, and finish erasures that had to wait."""
    try:
        service.ledgers.finish_erasing()
    except StoreError as error:
        _log.warning("erased texts are still in the write-ahead log", reason=str(error))
    for population in _populations(service):
        try:
            publisher.publish(population)
        except (ImportError, OSError, Problem, StoreError, ValueError) as error:
            _log.error("publication failed", population=population, reason=str(error))


def report(service: Service, publisher: Publisher, folder: Path, desk: Desk) -> None:
    """Write every population's compliance report."""
    for population in _populations(service):
        try:
            about = About(population, publisher.last_published(population))
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for form, text in report_texts(desk, service, about, FORMATS).items():
                write_whole(folder / f"{population}.{form}", text)
            _log.info("report written", population=population, path=str(folder))
        except (OSError, Problem, StoreError, ValueError) as error:
            _log.error("report failed", population=population, reason=str(error))


def _populations(service: Service) -> list[str]:
    try:
        return service.populations()
    except StoreError as error:  # the job waits for its next run
        _log.error("the ledgers cannot be read", reason=str(error))
        return []
