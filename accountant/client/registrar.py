"""The administrator's calls: a population, its datasets and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accountant.client import calls
from accountant.client.errors import Body
from accountant.client.sync import Sender


class Registrar(Sender):
    """Registers a population with its datasets and adopts its policy. Needs an admin's key.

    Every call may be repeated: registering what is already registered changes nothing.
    """

    def register(
        self,
        *,
        privacy_unit: str,
        neighbouring: str,
        membership: str,
        dimensions: Mapping[str, Sequence[str]],
        fixed: Mapping[str, str] | None = None,
    ) -> Body:
        """Register the population, or append values to its dimensions. ``fixed`` says of those that
        look like times of events why they never change.
        """
        fields = (privacy_unit, neighbouring, membership, dimensions, fixed)
        return self.send(calls.register_population(*fields))

    def dataset(
        self,
        dataset: str,
        *,
        namespace: str,
        name: str,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        parents: Sequence[str] | None = None,
        also: Sequence[str] | None = None,
        approver_key: str | None = None,
    ) -> Body:
        """Register a dataset about the population under a short id, or change its owner, labels
        (left out they stay) or parents. If other populations have the same data, ``also`` names all
        of them ("population/dataset"). That needs a second person's key, and so does what takes the
        dataset out of the scope of a rule that blocks.
        """
        more = {"labels": labels, "parents": parents, "also": also}
        fields = {"namespace": namespace, "name": name, "owner": owner, **more}
        return self.send(calls.register_dataset(dataset, approver_key, **fields))

    def policy(
        self, text: str, *, approver_key: str | None = None, closes: Sequence[str] = ()
    ) -> Body:
        """Adopt a policy file. Loosening the policy in force needs a second person's key; limits in
        which nothing would fit any more have to be named by ``closes``.
        """
        return self.send(calls.adopt_policy(text, approver_key, closes))
