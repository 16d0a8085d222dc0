"""The evidence of a ledger, whichever database it is in: signed, published, exported, recovered."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

from places import Place
from support import World, ask, clean, confirming, hundredth, laplace

from accountant.auditing.verify import AuditResult, verify
from accountant.budget.commands import Envelope
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.notes import parse
from accountant.publishing import recovery
from accountant.publishing.export import covering, write_bundle
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault


def spend(world: World, count: int) -> None:
    """Grants with a purpose, each committed."""
    for _ in range(count):
        grant = world.post("/grants", ask(laplace("0.001"), purpose="weekly table"))
        assert grant.status_code == 201, grant.text
        assert world.post(f"/grants/{grant.json()['id']}/commit", {}).status_code == 200


def audited(world: World) -> AuditResult:
    """The verdict on the ledger's bundle, texts included."""
    signed = world.publisher.sign("fair")
    out = io.BytesIO()
    entries = covering(0, None, signed.size)
    ledgers = world.service.ledgers
    state = world.service.state("fair")
    write_bundle(out, ledgers, "fair", signed, state, entries, with_texts=True)
    return verify([io.BytesIO(out.getvalue())])


def test_a_bundle_verifies_after_an_erasure(world: Callable[..., World]) -> None:
    """A ledger with some hundred events, checkpoints and an erased text is exported and verified,
    decisions included; every receipt is given.
    """
    made = world().hospital()
    spend(made, 3)
    made.publisher.sign("fair")
    spend(made, 130)
    purposes = [text for text in made.service.texts("fair", 0, 999) if text.field == "purpose"]
    assert len(purposes) == 133
    made.service.erase("fair", "officer", purposes[0].sequence, None, "she asked for it")
    verdict = audited(made)
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.events == made.head().size > 256
    for sequence in (0, 255, 256, made.head().size - 1):
        assert made.get(f"/receipts/{sequence}").status_code == 200
    clean(made)


def test_a_database_that_lost_events_is_recovered(
    world: Callable[..., World], place: Place
) -> None:
    """A backup under a vault that has signed more is refused, until somebody opens a new epoch, in
    which what was spent stays spent.
    """
    made = world().hospital()
    spend(made, 2)
    made.publisher.sign("fair")
    place.backup()
    spend(made, 5)
    made.publisher.sign("fair")
    used = made.used()[0][0]
    made.close()
    place.restore()
    back = world()
    assert back.post("/grants", ask(laplace("0.001")), key="one").status_code == 503
    ledgers, vault = back.service.ledgers, Vault(back.settings.home)
    event = recovery.propose(ledgers, vault, "fair", by="operator:o", reason="the disk died")
    assert back.post("/grants", ask(laplace("0.001")), key="one").status_code == 503
    confirmed = Envelope("operator:p", confirming(event))
    recovery.confirm(ledgers, vault, "localhost", "fair", confirmed)
    again = world()
    assert again.post("/grants", ask(laplace("0.001")), key="two").status_code == 201
    assert again.used()[0][0] == used + 10**6
    assert [str(finding) for finding in audited(again).findings] == []


def test_two_services_that_sign_keep_the_order(world: Callable[..., World], place: Place) -> None:
    """Two services with one vault sign while both append: checkpoints are numbered without a gap,
    each continues the one before, and the vault has the last in the end.
    """
    made = world().hospital()
    made.publisher.sign("fair")  # with its key
    vault = Vault(made.settings.home)
    other = Service(open_ledgers(place.url), vault=vault)
    publishers = (made.publisher, Publisher(other, vault, "localhost"))
    failures: list[BaseException] = []

    def work(publisher: Publisher, service: Service, name: str) -> None:
        try:
            for i in range(8):
                hundredth(service, name, f"{name}-{i}")
                publisher.sign("fair")
        except BaseException as error:  # noqa: BLE001 shown below
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=(publisher, service, name))
        for publisher, service, name in zip(
            publishers, (made.service, other), ("one", "two"), strict=True
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    signed = made.service.ledgers.signed("fair")
    sizes = [Checkpoint.from_text(parse(one.note).text).size for one in signed]
    assert [one.number for one in signed] == list(range(len(signed)))
    assert sizes == sorted(set(sizes)) == [one.size for one in signed]
    assert vault.read("fair", "signed") == signed[-1].note
    assert sizes[-1] == made.head().size
    assert [str(finding) for finding in audited(made).findings] == []
    other.ledgers.close()
