"""Populations with more names than one request holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from accountant.client import Failed, Registrar, calls

if TYPE_CHECKING:
    from conftest import Network, Served

NAMES = [f"{number:05d}-\u00e9" + "x" * 67 for number in range(20_000)]
TERMS: dict[str, Any] = {
    "privacy_unit": "person",
    "neighbouring": "replace_one",
    "membership": "public",
}
PEOPLE: Any = TERMS | {"dimensions": {"age": ["young", "old"], "id": NAMES}}


def test_what_is_cut_is_the_list() -> None:
    """Parts follow each other without a gap, and a long name is a part of its own."""
    names = ["a", "b" * 99, "c", "d", "e" * 500]
    for most in (1, 10, 150, 10**6):
        parts = list(calls.cut(names, most))
        assert [name for _, part in parts for name in part] == names
        assert [first for first, _ in parts] == [names.index(part[0]) for _, part in parts]
    assert list(calls.cut(names, 10**6, 3)) == [(3, names[3:])]
    assert list(calls.cut([], 9)) == []


def test_an_upload_that_was_interrupted_goes_on(served: Served, network: Network) -> None:
    """Requests of which the answer is lost are repeated and change nothing; after an end in the
    middle the same call goes on where it ended.
    """
    name = f"many-{next(served.names)}"
    admin = served.keys["admin"]
    network.plan = ["pass", "pass", "lose", "pass"]
    network.plan += ["cut"] * 50
    with (
        Registrar(network.url, admin, name, backoff=0.01) as registrar,
        pytest.raises(Exception, match=r"."),
    ):
        registrar.register(**PEOPLE)
    network.plan.clear()
    sent = len(network.bodies)
    with Registrar(network.url, admin, name, backoff=0.01) as registrar:
        found = registrar.register(**PEOPLE)
        assert found["dimensions"] == {"age": ["young", "old"], "id": NAMES}
        assert len(network.bodies) - sent < 12
        sequence = found["sequence"]
        assert registrar.register(**PEOPLE)["sequence"] == sequence
    assert max(map(len, network.bodies)) < 1_000_000


def test_another_population_of_that_name_is_not_extended(served: Served) -> None:
    """Other terms, other dimensions and other names are refused with the service's reason."""
    name = f"many-{next(served.names)}"
    with Registrar(served.url, served.keys["admin"], name) as registrar:
        registrar.register(**TERMS, dimensions={"age": ["young", "old"], "id": ["other"]})
        for wrong, code in (
            (PEOPLE, "dimensions-append-only"),
            (PEOPLE | {"privacy_unit": "household"}, "population-immutable"),
            (PEOPLE | {"dimensions": {"id": NAMES}}, "dimensions-append-only"),
        ):
            with pytest.raises(Failed) as failure:
                registrar.register(**wrong)
            assert failure.value.code == code
