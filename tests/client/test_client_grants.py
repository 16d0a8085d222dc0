"""What a pipeline holds in its hands: grants, sessions, refusals. The safe thing is the default."""

from __future__ import annotations

from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from accountant.client import Client, Failed, MayHaveRun, Refused, Unreachable, calls

if TYPE_CHECKING:
    from conftest import Network, Served

LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "4"}
SPARSE = {
    "kind": "sparse_vector",
    "sensitivity": "1",
    "threshold_scale": "8",
    "comparison_scale": "16",
    "max_positives": 5,
}


def state(accountant: Client, grant: str) -> tuple[str, Any]:
    """A grant's state, and the epsilon that it was charged."""
    shown = accountant.grant_state(grant)
    return shown.state, shown.charged and str(shown.charged["epsilon"])


def test_commits(served: Served) -> None:
    """A block that ends well commits what was granted."""
    with served.client(served.population()) as accountant:
        with accountant.grant("visits", [LAPLACE], purpose="test") as grant:
            assert grant.outcome == "allow"
            assert (grant.flags, grant.charge["epsilon"]) == ((), Decimal("0.25"))
            assert grant.epsilon == Decimal("0.25")
            assert accountant.decision(grant.decision_id).outcome == "allow"
        assert state(accountant, grant.id) == ("committed", "0.25")


def test_partial_commit(served: Served) -> None:
    """What was not executed is left out of an explicit commit and comes back."""
    with served.client(served.population()) as accountant:
        with accountant.grant("visits", [LAPLACE, LAPLACE], purpose="test") as grant:
            grant.commit([LAPLACE])
        assert state(accountant, grant.id) == ("committed", "0.25")


def test_exception_is_charged(served: Served) -> None:
    """An exception inside the block is charged, for noise may have been drawn, and goes on."""
    with served.client(served.population()) as accountant:
        with (
            pytest.raises(ZeroDivisionError),
            accountant.grant("visits", [LAPLACE], purpose="test") as grant,
        ):
            raise ZeroDivisionError
        assert state(accountant, grant.id) == ("committed", "0.25")


def test_interrupt_is_charged(served: Served) -> None:
    """Ctrl-C inside the block is charged like any other exception."""
    with served.client(served.population()) as accountant:
        with (
            pytest.raises(KeyboardInterrupt),
            accountant.grant("visits", [LAPLACE], purpose="test") as grant,
        ):
            raise KeyboardInterrupt
        assert state(accountant, grant.id) == ("committed", "0.25")


def test_release(served: Served) -> None:
    """Only an explicit attestation that nothing was executed gives the budget back."""
    with served.client(served.population()) as accountant:
        with accountant.grant("visits", [LAPLACE], purpose="test") as grant:
            grant.release("the table is not there; nothing was executed")
        assert state(accountant, grant.id) == ("released", "0")


def test_failed_commit_stops_publication(served: Served, network: Network) -> None:
    """If the commit fails the block raises, so that what follows it is not published."""
    with served.client(served.population(), url=network.url, attempts=1) as accountant:
        grant = accountant.grant("visits", [LAPLACE], purpose="test")
        network.plan = ["cut"]
        with pytest.raises(Unreachable), grant:
            pass
        assert state(accountant, grant.id) == ("reserved", None)


def test_failed_commit_keeps_exception(served: Served, network: Network) -> None:
    """If the commit fails after an exception, that exception is raised, with a note."""
    with served.client(served.population(), url=network.url, attempts=1) as accountant:
        grant = accountant.grant("visits", [LAPLACE], purpose="test")
        network.plan = ["cut"]
        with pytest.raises(ZeroDivisionError) as caught, grant:
            raise ZeroDivisionError
        assert "will be charged" in caught.value.__notes__[0]


def test_earlier_run(served: Served) -> None:
    """A grant of an earlier run under the same key cannot be run on again."""
    with served.client(served.population()) as accountant:
        first = accountant.grant("visits", [LAPLACE], purpose="test", idempotency_key="monday")
        again = accountant.grant("visits", [LAPLACE], purpose="test", idempotency_key="monday")
        assert again.id == first.id
        with pytest.raises(MayHaveRun), again:
            pass
        again.commit()
        assert state(accountant, first.id) == ("committed", "0.25")


def test_earlier_run_on_a_bad_day(served: Served, network: Network) -> None:
    """A hiccup on the way does not make an earlier run's grant look like our own."""
    population = served.population()
    with served.client(population) as accountant:
        accountant.grant("visits", [LAPLACE], purpose="test", idempotency_key="monday")
    network.plan = ["busy", "lose"]
    with served.client(population, url=network.url) as accountant:
        again = accountant.grant("visits", [LAPLACE], purpose="test", idempotency_key="monday")
        with pytest.raises(MayHaveRun), again:
            pass


def test_by_id(served: Served) -> None:
    """A grant can be committed or released by its id, from elsewhere."""
    with served.client(served.population()) as accountant:
        one = accountant.grant("visits", [LAPLACE], purpose="test")
        two = accountant.grant("visits", [LAPLACE], purpose="test")
        assert accountant.commit(one.id).state == "committed"
        assert accountant.release(two.id, "not started").state == "released"


def test_refused(served: Served, network: Network) -> None:
    """A refusal carries the decision and its rules, reads well, and is not retried."""
    with (
        served.client(served.population(), url=network.url) as accountant,
        pytest.raises(Refused) as caught,
    ):
        accountant.grant("visits", [LAPLACE | {"count": 5}], purpose="test")
    assert len(network.keys) == 1
    refused = caught.value
    assert refused.rules == ("lifetime",)
    assert refused.code == "budget-exceeded"
    assert refused.decision["outcome"] == "block"
    assert refused.charge["epsilon"] == "1.25"
    assert "epsilon 0 used + 1.25 asked = 1.25 is more than the limit 1" in str(refused)
    assert refused.would_fit == {"count": 4, "scale": "5"}


def test_failed(served: Served) -> None:
    """Everything else that goes wrong is Failed, with status, code and explanation."""
    population = served.population()
    with served.client(population) as accountant:
        with pytest.raises(Failed, match="no such thing") as malformed:
            accountant.grant("visits", [{"kind": "no such thing"}], purpose="test")
        with pytest.raises(Failed) as role:
            list(accountant.events())
    with (
        Client(served.url, "acct_wrong", population) as stranger,
        pytest.raises(Failed) as unknown,
    ):
        stranger.accounts()
    assert (malformed.value.status, role.value.status, unknown.value.status) == (422, 403, 401)
    assert (role.value.code, unknown.value.code) == ("role-not-allowed", "unauthenticated")


def test_record(served: Served) -> None:
    """What ran without a grant is recorded, and says that it was too much."""
    with served.client(served.population()) as accountant:
        within = accountant.record("visits", [LAPLACE], purpose="test")
        beyond = accountant.record("visits", [LAPLACE | {"count": 4}], purpose="test")
    assert within is not None
    assert beyond is not None
    assert (within.overrun, beyond.overrun) == (False, True)
    assert (within.flags, beyond.flags) == ((), ("lifetime",))


def test_preview(served: Served) -> None:
    """A preview says what would be decided and how often it fits, and leaves no event."""
    with served.client(served.population()) as accountant:
        before = accountant.accounts().sequence
        assert accountant.preview("visits", [LAPLACE], purpose="test").fits == 4
        assert accountant.accounts().sequence == before


def test_preview_of_several(served: Served) -> None:
    """Each is decided after those before it that would be granted; nothing is recorded."""
    with served.client(served.population()) as accountant:
        before = accountant.accounts().sequence
        item = calls.grant_item("visits", [LAPLACE], purpose="test")
        found = accountant.preview_batch([item] * 5)
        assert [one.outcome for one in found.items] == ["allow"] * 4 + ["block"]
        assert (found.granted, found.items[4].flags) == (4, ("lifetime",))
        assert found.items[0].charge["epsilon"] == Decimal("0.25")
        assert accountant.accounts().sequence == before


def test_groups(served: Served) -> None:
    """A charge to one group leaves the others as they were."""
    with served.client(served.population()) as accountant:
        accountant.record("visits", [LAPLACE], subjects={"country": ["KR"]}, purpose="test")
        [line] = accountant.accounts("visits", by="country").accounts
    assert [str(group.spent) for group in line.groups] == ["0.25", "0"]


def test_session(served: Served) -> None:
    """A session that ends well is closed, and unused positives come back."""
    with served.client(served.population()) as accountant:
        with accountant.sparse_vector("visits", SPARSE, purpose="test") as session:
            session.count(negatives=200)
            session.count(positives=2, negatives=10)
            assert (session.positives, session.negatives) == (2, 210)
        assert state(accountant, session.id) == ("committed", "0.375")


def test_session_exception(served: Served) -> None:
    """After an exception a session stays open, to expire and be charged whole."""
    with served.client(served.population()) as accountant:
        with (
            pytest.raises(ZeroDivisionError),
            accountant.sparse_vector("visits", SPARSE, purpose="test") as session,
        ):
            raise ZeroDivisionError
        assert state(accountant, session.id) == ("reserved", None)


def test_open_grants(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline finds the grants that it has left open, page by page, and no others'."""
    monkeypatch.setattr("accountant.client.calls.PAGE", 2)
    population = served.population()
    with served.client(population) as accountant, served.client(population, "other") as other:
        names = [
            accountant.grant("visits", [LAPLACE | {"scale": "100"}], purpose="test").id
            for _ in range(5)
        ]
        theirs = other.grant("visits", [LAPLACE], purpose="test").id
        accountant.commit(names.pop(2))
        assert [grant.id for grant in accountant.open_grants()] == names
        assert [grant.id for grant in other.open_grants(dataset="visits")] == [theirs]
        with pytest.raises(Failed, match="another client"):
            list(accountant.open_grants("other"))


def test_an_answer_is_published_again(served: Served) -> None:
    """By its bytes or their digest, at no charge, and once for the same key."""
    digest = sha256(b"41.7").hexdigest()
    with served.client(served.population()) as accountant:
        with accountant.grant("visits", [LAPLACE], purpose="test") as grant:
            grant.commit()
        first = accountant.republish(grant.id, "visits", b"41.7", idempotency_key="again")
        second = accountant.republish(grant.id, "visits", digest, idempotency_key="again")
    assert first.answer == second.answer == digest
    assert first.body["sequence"] == second.body["sequence"]
    assert set(first.body["charged"].values()) == {"0"}
