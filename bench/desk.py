"""The officer's pages on long ledgers with many accounts, and grants beside those who read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import count, islice
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Final

from accountant.budget.commands import AskGrant, CommitGrant, Envelope
from accountant.config.settings import Settings
from accountant.console.facts.home import HomeFacts, home
from accountant.console.pages.home import told
from accountant.console.rendering import Frame, render
from accountant.reporting.desk import Desk
from accountant.reporting.making import About, likely_place, made
from accountant.reporting.periods.making import KINDS, AskedReport, Kind
from accountant.reporting.periods.period import Period
from accountant.reporting.progress import silent
from accountant.runtime.service import Service
from accountant.store.ledgers import Ledgers
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault
from bench.asking import HOT, open_ledger, register
from bench.core import POLICY
from bench.http import CONNECTIONS, ROUNDS, Target
from bench.running import Served, made_keys, run, served, serving

ACCOUNTS: Final = 1_000
LONG: Final = 100_000
MILLION: Final = 1_000_000
PAGE: Final = 1_000
BOXES: Final = 300
LOOKS: Final = 15
FEW_LOOKS: Final = 5
LEDGER: Final = "many"
Row = dict[str, Any]


def pages(folder: Path) -> list[Row]:
    """Home with a thousand accounts after 10^5 events."""
    return _measured(folder, LONG)


def million(folder: Path) -> list[Row]:
    """Home with a thousand accounts after 10^6 events."""
    return _measured(folder, MILLION)


def every(folder: Path) -> list[Row]:
    """Every page of the console over HTTP, each after a grant: a thousand accounts after 10^5
    events, and 10^6 cells, each charged differently.
    """
    shapes = (
        ("10^5 events, 1,000 accounts", f"d{ACCOUNTS - 1}", _fill_long),
        ("10^6 cells charged", HOT, _fill_dense),
    )
    return [row for shape in shapes for row in _every(folder, *shape)]


def _every(
    folder: Path, past: str, dataset: str, fill: Callable[[Service], Iterator[Envelope]]
) -> Iterator[Row]:
    place = folder / dataset
    place.mkdir()
    url = f"sqlite:///{place}/accountant.db"
    secret, _ = made_keys(place, url)
    with closing(Service(open_ledgers(url), vault=Vault(Settings(home=place).home))) as service:
        asked = fill(service)
        last = service.head(LEDGER).size - 1
    code = _link(place, url)
    with serving(place, url, secret) as made:
        look = _reader(made, code)
        for address in _pages(dataset, last):
            while not look(address):  # a page of a part of the ledger tells other figures
                time.sleep(0.5)
            times = []
            for _ in range(FEW_LOOKS):
                one = next(asked)
                with made.client() as client:
                    body = {k: v for k, v in one.command.to_json().items() if k != "type"}
                    headers = {"Idempotency-Key": str(one.key)}
                    path = f"/v1/populations/{LEDGER}/grants"
                    client.post(path, json=body, headers=headers).raise_for_status()
                started = time.perf_counter()
                look(address)
                times.append(time.perf_counter() - started)
            yield {"what": address, "value": median(times) * 1e3, "unit": "ms", "beside": past}


def _pages(dataset: str, last: int) -> list[str]:
    """Return the address of each page; the last event is a grant."""
    here, tried = f"/console/{LEDGER}", "what-if?rule=lifetime&epsilon=500000"
    each = ("requests", "proposals", "findings", "ledger", "reports", "evidence", "what-if", tried)
    account = f"{here}/accounts/{dataset}"
    return [
        *("/console", "/console/keys", f"{here}/accounts", account, f"{here}/accounts/*"),
        *(f"{here}/{one}" for one in each),
        *(f"{here}/ledger/{last}", f"{here}/decisions/{last}"),
        f"{account}?rule=person",
    ]


def _fill_long(service: Service) -> Iterator[Envelope]:
    open_ledger(service, LEDGER, [f"d{i}" for i in range(ACCOUNTS)])
    asked = _requests()
    while (left := LONG - service.head(LEDGER).size) > 0:
        service.execute_all(LEDGER, list(islice(asked, min(PAGE, left))))
    return asked


def _fill_dense(service: Service) -> Iterator[Envelope]:
    """Grants on boxes that cut each dimension in other places, half of them still open."""
    dimensions = {f"d{k}": [str(i) for i in range(100)] for k in range(3)}
    open_ledger(service, LEDGER, dimensions=dimensions)
    asked = _narrow()
    for number, one in enumerate(islice(asked, BOXES)):
        [granted] = service.execute(LEDGER, one).entries
        if number % 2:
            commit = CommitGrant(grant=f"g{granted.sequence}")
            service.execute(LEDGER, Envelope("bench", commit))
    service.execute(LEDGER, next(asked))
    return asked


def _narrow() -> Iterator[Envelope]:
    draw = random.Random(1)  # noqa: S311 no secret
    for number in count():
        firsts = [draw.randrange(60) for _ in range(3)]
        subjects = {
            f"d{k}": {"from": str(at), "to": str(at + draw.randrange(5, 40))}
            for k, at in enumerate(firsts)
        }
        mechanism = {"kind": "laplace", "sensitivity": "1", "scale": f"{1000 + draw.random():.6f}"}
        body = {"dataset": HOT, "mechanisms": [mechanism], "subjects": subjects}
        yield Envelope("bench", AskGrant.model_validate(body), f"n{number}")


def readers(folder: Path) -> list[Row]:
    """Grants while Home is read four times a second, as by 120 people who have it open."""
    home = folder / "readers"
    home.mkdir()
    url = f"sqlite:///{home}/bench.db"
    with served(home, url) as made:
        register(made, "three", POLICY, [HOT])
        target = Target("grants", made, "/v1/populations/three/grants", [HOT])
        target.warm_up(CONNECTIONS)
        look = _reader(made, _link(home, url))
        rates = []
        for _ in range(ROUNDS):
            first = target.run(CONNECTIONS).seen.rate
            done = Event()
            reading = Thread(target=_read, args=(look, done))
            reading.start()
            second = target.run(CONNECTIONS).seen.rate
            done.set()
            reading.join()
            rates.append((first, second))
    ratio = median(second / first for first, second in rates)
    alone = f"{CONNECTIONS} connections, {median(rate for rate, _ in rates):,.0f} a second alone"
    return [{"what": "grants beside readers", "value": ratio, "unit": "ratio", "beside": alone}]


def _link(home: Path, url: str) -> str:
    said = run(home, url, "signin-link", "--role", "auditor", "--name", "reader")
    return said.split("/console/signin/link/")[1].split()[0]


def _reader(made: Served, code: str) -> Callable[[str], bool]:
    """Somebody who has signed in; returns how they look at a page, which returns whether it is
    there, and of the whole ledger.
    """
    client = made.client()
    del client.headers["Authorization"]
    origin = {"Origin": f"http://127.0.0.1:{made.port}", "Sec-Fetch-Site": "same-origin"}
    client.post("/console/signin/code", data={"code": code}, headers=origin)

    def look(address: str) -> bool:
        answer = client.get(address)
        if answer.status_code not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
            raise RuntimeError(f"{address} cannot be seen: {answer.status_code}")
        return answer.status_code == HTTPStatus.OK and "Refresh" not in answer.headers

    look("/console")
    return look


def _read(look: Callable[[str], bool], done: Event) -> None:
    while not done.wait(0.25):
        look("/console")


def _measured(folder: Path, events: int) -> list[Row]:
    place = folder / f"console{events}"
    place.mkdir()
    url = f"sqlite:///{place}/accountant.db"
    migrate(url)
    with closing(Service(open_ledgers(url), vault=Vault(Settings(home=place).home))) as service:
        open_ledger(service, LEDGER, [f"d{i}" for i in range(ACCOUNTS)])
        asked = _requests()
        while (left := events - service.head(LEDGER).size) > 0:
            answers = service.execute_all(LEDGER, list(islice(asked, min(PAGE, left))))
            done = answers[: max(0, left - len(answers))]
            commits = [CommitGrant(grant=f"g{answer.entries[0].sequence}") for answer in done]
            service.execute_all(LEDGER, [Envelope("bench", commit) for commit in commits])
        now = service.time()
        desk, cold = _first(service.ledgers, place, now)
        desk.close()
        desk, restarted = _first(service.ledgers, place, now)
        again, after = [], []
        for _ in range(LOOKS):
            again.append(_look(desk, now))
            service.execute_all(LEDGER, list(islice(asked, 1)))
            after.append(_look(desk, now))
        desk.close()
        signed = [_report(service, kind, now) for kind in KINDS]
    past = f"{events:,} events, {ACCOUNTS:,} accounts"
    return [
        {"what": "the first page is ready after", "value": cold, "unit": "s", "beside": past},
        {"what": "and after a restart", "value": restarted, "unit": "s", "beside": past},
        {"what": "Home", "value": median(again) * 1e3, "unit": "ms", "beside": past},
        {"what": "Home after a grant", "value": median(after) * 1e3, "unit": "ms", "beside": past},
        *(
            {"what": f"{kind} report of all", "value": seconds, "unit": "s", "beside": past}
            for kind, seconds in zip(KINDS, signed, strict=True)
        ),
    ]


def _first(ledgers: Ledgers, home_of: Path, now: int) -> tuple[Desk, float]:
    """A desk, and the seconds until it has read the ledger to its end."""
    desk, started = Desk(ledgers, home_of), time.perf_counter()
    while not isinstance(desk.ask(LEDGER, home, now, None, 600), HomeFacts):
        pass
    return desk, time.perf_counter() - started


def _report(service: Service, kind: Kind, now: int) -> float:
    """The processor time of a report about all events, as HTML, made as the service makes it."""
    today = datetime.fromtimestamp(now / 1e6, UTC).date()
    period = Period(today - timedelta(days=30), today)
    asked = AskedReport.of(kind, period, "d7" if kind == "statement" else None, now)
    started = time.process_time()
    likely = likely_place(service, LEDGER, asked)
    made(service.ledgers, silent, About(LEDGER, None), asked, "html", likely)
    return time.process_time() - started


def _look(desk: Desk, now: int) -> float:
    """The seconds from the question to the page."""
    started = time.perf_counter()
    found = desk.ask(LEDGER, home, now)
    frame = Frame("olive", "officer", "", "home", LEDGER, (LEDGER,), now)
    render("home.html.j2", frame, exact=False, **told([(LEDGER, found)], now))
    return time.perf_counter() - started


def _requests() -> Iterator[Envelope]:
    """Grants on all datasets in turn, no two alike."""
    number = 0
    while True:
        number += 1
        scale = f"{1_000 + number % 7_919}.{number % 97:02}"
        mechanism = {"kind": "laplace", "sensitivity": "1", "scale": scale}
        asked = AskGrant.model_validate(
            {
                "dataset": f"d{number % ACCOUNTS}",
                "mechanisms": [mechanism],
                "purpose": f"study {number % 500}",
                "ttl_seconds": 10**6,
            }
        )
        yield Envelope("bench", asked, f"c{number}")
