"""Why a change was confirmed: in nobody's way, in no event, and no other text than was sealed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from house import House, audit, reasons, resident

from accountant.reporting.texts import Texts

WHY = "Marigold-Featherstonehaugh wants it"
POLICY = "policy: q\nrules:\n  - {id: a, limit: {epsilon: 1000, delta: 1e-6}}\n"


def confirmed(made: House, named: dict[str, Any], **more: Any) -> Any:
    """The answer to a confirmation of a proposal."""
    path = f"/proposals/{named['proposal']}/confirm"
    return made.post(path, {"digest": named["digest"]} | more, who="officer", key="once")


def test_a_reason_stands_beside_the_event_of_the_change(house: Callable[..., House]) -> None:
    """The event has its digest; a bundle with it has no finding, and one in which it was changed
    has; a retry is the same event; erased it is missing nowhere.
    """
    made = resident(house())
    named = made.put("/policy", POLICY).json()
    answer = confirmed(made, named, reason=WHY)
    assert answer.status_code == 200, answer.text
    assert confirmed(made, named, reason=WHY).json() == answer.json()
    number = answer.json()["sequence"]
    assert WHY.encode() not in b"".join(made.stored())
    event = made.service.event("fair", number)
    assert event.body["command"]["confirms"]["reason"].keys() == {"sealed"}
    opened = Texts(lambda *ends: made.service.texts("fair", *ends)).opened(event)
    assert opened.body["command"]["confirms"]["reason"] == WHY
    assert reasons(audit(made.bundle())) == []
    made.raw(f"UPDATE text SET text = 'another' WHERE sequence = {number}", guarded=False)
    assert reasons(audit(made.bundle())) == [
        f"event {number}: its confirms.reason is not what was sealed"
    ]
    erase = {"reason": "asked for"}
    assert made.call("POST", f"/events/{number}/erase", erase, who="officer").status_code == 200
    assert reasons(audit(made.bundle())) == []


def test_a_reason_is_sent_as_text(house: Callable[..., House]) -> None:
    """A digest in its place is refused, and an overlong text: nothing is confirmed."""
    made = resident(house())
    named = made.put("/policy", POLICY).json()
    for wrong in ({"sealed": "0" * 64}, "y" * 2001, ""):
        assert confirmed(made, named, reason=wrong).status_code == 422
    assert confirmed(made, named).status_code == 200
    assert reasons(audit(made.bundle())) == []
