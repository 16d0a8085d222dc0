"""Witnesses on real sockets: what they sign is kept and served, and nobody waits for them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from bad_witnesses import BAD
from house import ROOMS, House, adopt, audit, reasons, resident
from witness import Witness
from witnessing import Witnessed, alarms, granted, publication, served

from accountant import jobs
from accountant.ledger.notes import Verifier, parse
from accountant.publishing import witness as asking


def test_cosignatures_are_kept_and_served(witnessed: Witnessed) -> None:
    """A head is published once the witnesses have signed it; the checkpoint that is served, and
    receipts and bundles, have their lines; so have those of a service that is started again.
    """
    house, witnesses = witnessed(3, 2)
    for _ in range(3):
        granted(house)
        signed = house.publisher.publish("fair")
        assert signed is not None
        assert served(house) == signed.full
        keys = [Verifier.from_text(witness.key) for witness in witnesses]
        assert parse(signed.full).verified(keys) == keys
        assert all(w.heads[f"{house.settings.origin}/fair"][0] == signed.size for w in witnesses)
    verdict = audit(house.bundle())
    assert (reasons(verdict), verdict.cosigned) == ([], 3)
    receipt = house.get("/receipts/2")
    assert receipt.content.endswith(signed.full)
    again = house.again()
    assert again.publisher.published("fair").full == signed.full
    before = [len(witness.requests) for witness in witnesses]
    assert again.publisher.publish("fair") is not None
    assert [len(witness.requests) for witness in witnesses] == before  # nothing new, nobody asked
    again.close()


def test_a_quorum_publishes(witnessed: Witnessed) -> None:
    """With two of three required, one that is away does not matter, two are too few; when one is
    back the same head is published, with its line.
    """
    house, witnesses = witnessed(3, 2)
    first = house.publisher.publish("fair")
    assert first is not None
    granted(house)
    for away in witnesses[1:]:
        away.answering = lambda *_: (503, b"away")
    assert house.publisher.publish("fair") is None
    assert served(house) == first.full
    witnesses[2].answering = None
    second = house.publisher.publish("fair")
    assert second is not None
    assert second.size > first.size
    assert served(house) == second.full
    assert second.full.count(b"witness.example") == 2
    witnesses[1].answering = None
    third = house.publisher.publish("fair")
    assert third is not None
    assert (third.size, third.full.count(b"witness.example")) == (second.size, 3)
    assert alarms(house) == []


@pytest.mark.parametrize("bad", BAD, ids=lambda f: getattr(f, "__name__", "?"))
def test_a_bad_witness_delays_publication_only(
    witnessed: Witnessed, monkeypatch: pytest.MonkeyPatch, bad: Callable[..., Any]
) -> None:
    """A witness that is slow, endless, redirecting, of another key or talking nonsense gets nothing
    published, raises no alarm, and holds up no grant.
    """
    monkeypatch.setattr(asking, "TIMEOUT", 2.0)
    house, [witness] = witnessed()
    granted(house)
    witness.answering = bad
    start, meanwhile = time.monotonic(), 0
    publishing = threading.Thread(target=house.publisher.publish, args=["fair"])
    publishing.start()
    while publishing.is_alive():
        granted(house)
        meanwhile += publishing.is_alive()
        time.sleep(0.05)
    publishing.join()
    taken = time.monotonic() - start
    assert taken < 5.5
    assert meanwhile or taken < asking.TIMEOUT  # else the first grant waited for the witness
    assert served(house) is None
    assert alarms(house) == []
    assert house.service.ledgers.signed("fair")[-1].cosignatures == ()
    witness.answering = None
    assert house.publisher.publish("fair") is not None
    assert served(house) is not None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://é\u202e/", "http://a..b/", "http://[", "http://?"]
)
def test_a_witness_that_cannot_be_reached(house: Callable[..., House], url: str) -> None:
    """Nobody behind an address, or an address that is none, is no error of the service."""
    made = resident(house())
    nobody = Witness()
    nobody.close()
    text = publication([nobody], 1).replace(nobody.url, url)
    adopt(made, ROOMS, text, confirmed_by="officer")
    assert made.publisher.publish("fair") is None
    assert served(made) is None
    granted(made)
    assert alarms(made) == []


def test_an_answer_that_was_lost_is_no_alarm(witnessed: Witnessed) -> None:
    """If the service was killed before a witness's answer was kept, the witness says which size it
    knows; it is shown that the ledger continues that, also if it is the very same head.
    """
    house, [witness] = witnessed()
    answer = witness.answer
    for more in (True, False):
        granted(house)
        witness.answering = lambda body, _: (answer(body) and 0, b"")  # signs, and is not heard
        assert house.publisher.publish("fair") is None
        if more:
            granted(house)
        witness.answering = None
        before = len(witness.requests)
        signed = house.publisher.publish("fair")
        assert signed is not None
        assert len(witness.requests) == before + 2  # told the size, then shown
        assert served(house) == signed.full
    assert alarms(house) == []


def test_a_later_head_of_ours_is_no_alarm(witnessed: Witnessed) -> None:
    """If another process shows the witnesses a later head just before, theirs is no contradiction,
    whether it is met in their answer or in the database.
    """
    house, witnesses = witnessed(2, 2)
    other = house.again()
    house.grant()

    def overtaken(body: bytes, _: Any) -> tuple[int, bytes]:
        witnesses[0].answering = None
        other.grant()
        assert other.publisher.publish("fair") is not None
        return witnesses[0].answer(body)

    witnesses[0].answering = overtaken
    assert house.publisher.publish("fair") is None
    assert alarms(house) == []
    assert house.publisher.publish("fair") == other.publisher.published("fair")
    other.close()


def test_two_services_publish_at_once(witnessed: Witnessed) -> None:
    """Two services on one home that show a witness their heads at the same time get cosignatures,
    and no alarm.
    """
    house, _ = witnessed(2, 2)
    other = house.again()
    failures: list[BaseException] = []

    def work(mine: House) -> None:
        try:
            for _ in range(12):
                mine.grant()
                mine.publisher.publish("fair")
        except BaseException as error:  # noqa: BLE001 for the test to see
            failures.append(error)

    threads = [threading.Thread(target=work, args=[each]) for each in (house, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert alarms(house) == []
    assert house.publisher.publish("fair") is not None
    verdict = audit(house.bundle())
    assert (reasons(verdict), verdict.cosigned) == ([], 2)
    other.close()


def test_what_asks_witnesses_cannot_be_loaded(
    witnessed: Witnessed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the installation is replaced under a running service, those who have witnesses are
    published later, the others as ever.
    """
    house, _ = witnessed(1, 1)
    other = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    called = house.http.put("/v1/populations/zoo", json=other, headers=house.auth("admin"))
    assert called.status_code == 200, called.text
    granted(house)
    before = served(house)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    jobs.publish(house.service, house.publisher)
    assert served(house) == before
    assert house.publisher.published("zoo") is not None
