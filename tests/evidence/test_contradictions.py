"""Witnesses that know another history, and who may do with fewer of them."""

from __future__ import annotations

import shutil

import pytest
from house import ROOMS, House, adopt, audit, reasons
from support import proposed
from witness import Witness
from witnessing import Witnessed, alarms, granted, publication, served

from accountant.budget.commands import Envelope, ResumePublication
from accountant.budget.errors import Forbidden


def contradicted(house: House, status: int, detail: bytes, witness: Witness) -> None:
    """Fails unless what the witness says stops publication, and nothing else, until somebody has
    looked.
    """
    granted(house)
    before = served(house)
    assert house.publisher.publish("fair") is None
    [alarm] = alarms(house)
    assert (alarm["witness"], alarm["status"]) == (witness.name, status)
    assert detail.decode().strip() in alarm["detail"]
    asked = len(witness.requests)
    granted(house)
    assert house.publisher.publish("fair") is None
    assert len(witness.requests) == asked
    assert served(house) == before
    assert len(alarms(house)) == 1
    again = house.again()
    assert again.publisher.publish("fair") is None
    again.close()


@pytest.mark.parametrize(
    ("status", "detail"),
    [(422, b"inconsistent"), (409, b"100000\n"), (409, b"{size}\n"), (422, b""), (409, b"0\n")],
)
def test_a_contradiction_stops_publication(
    witnessed: Witnessed, status: int, detail: bytes
) -> None:
    """A witness that knows more of the ledger than there is, or that sees another history, stops
    publication with an event, until `accountant resume-publication`; grants go on.
    """
    house, [witness] = witnessed()
    signed = house.publisher.publish("fair")
    assert signed is not None
    detail = detail.replace(b"{size}", str(signed.size).encode())
    witness.answering = lambda *_: (status, detail)
    if detail == b"0\n":  # it has forgotten us: then it is shown all of it, and says no again
        granted(house)
        assert house.publisher.publish("fair") is None
        assert [alarm["status"] for alarm in alarms(house)] == [409]
        return
    contradicted(house, status, detail, witness)
    command = ResumePublication(reason="the witness's disk had been exchanged")
    house.service.execute("fair", Envelope("operator:o", command))
    witness.answering = None
    published = house.publisher.publish("fair")
    assert published is not None
    assert served(house) == published.full
    assert reasons(audit(house.bundle())) == []


@pytest.mark.parametrize(("asked", "required"), [(2, 1), (1, 0), (3, 1)])
def test_one_that_contradicts_is_enough(witnessed: Witnessed, asked: int, required: int) -> None:
    """However many others agree, and however few are required, one contradiction stops publication:
    what was published last stays what is served.
    """
    house, witnesses = witnessed(asked, required)
    assert house.publisher.publish("fair") is not None
    witnesses[-1].answering = lambda *_: (422, b"inconsistent")
    contradicted(house, 422, b"inconsistent", witnesses[-1])


def test_a_home_put_back_is_noticed_by_the_witness(witnessed: Witnessed) -> None:
    """If database and vault are put back together, nothing at home shows it; the witness does: the
    shorter history at once, and the one that has grown again too.
    """
    house, _ = witnessed()
    house.grant("0.001")
    assert house.publisher.publish("fair") is not None
    house.service.ledgers.close()
    copy = house.home.parent / "copy"
    shutil.copytree(house.home, copy)
    again = house.again()
    for _ in range(3):
        again.grant("0.002")
    assert again.publisher.publish("fair") is not None
    again.close()
    for more in (1, 8):
        shutil.rmtree(house.home)
        shutil.copytree(copy, house.home)
        back = house.again()
        for _ in range(more):
            back.grant("0.003")
        assert back.publisher.publish("fair") is None
        assert [alarm["status"] for alarm in alarms(back)] == [409 if more == 1 else 422]
        back.close()


def test_fewer_witnesses_need_a_second_person(witnessed: Witnessed) -> None:
    """Whoever asks for fewer witnesses, or others, needs another person; for more agreement of the
    same ones, or the first ones ever, nobody is needed.
    """
    house, witnesses = witnessed(3, 2)
    one, two, three = witnesses
    stranger = Witness("witness.example/stranger")
    for loose in (
        "",
        publication([], 0),
        publication(witnesses, 1),
        publication(witnesses, 0),
        publication([*witnesses, stranger], 2),
        publication([one, two, stranger], 2),
        publication([one, stranger], 2),
    ):
        proposed(adopt(house, ROOMS, loose), "witnesses")
        with pytest.raises(Forbidden, match="admin proposed this"):
            adopt(house, ROOMS, loose, confirmed_by="admin")
    stranger.close()
    for strict in (publication([three, one, two], 3), publication(witnesses, 3)):
        assert adopt(house, ROOMS, strict).body["loosens"] == []
    assert adopt(house, ROOMS, publication(witnesses, 2), "o").body["loosens"] != []
    assert adopt(house, ROOMS, publication([one, two], 2)).body["loosens"] == []


def test_a_new_quorum_counts_at_once(witnessed: Witnessed) -> None:
    """What was published under fewer witnesses is not published under more, until they have signed
    it.
    """
    house, witnesses = witnessed(3, 1)
    witnesses[2].answering = lambda *_: (503, b"")
    assert house.publisher.publish("fair") is not None
    assert served(house) is not None
    adopt(house, ROOMS, publication(witnesses, 3))
    assert served(house) is None
    assert house.publisher.publish("fair") is None
    witnesses[2].answering = None
    assert house.publisher.publish("fair") is not None
    assert served(house) is not None
