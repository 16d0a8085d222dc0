"""Calls of administrators and officers: a population, its datasets and policy, proposals,
approvals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accountant.client import calls
from accountant.client.errors import Body, Failed
from accountant.client.sync import Sender

_TERMS = "privacy_unit", "neighbouring", "membership"


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
        units: Mapping[str, Mapping[str, str | int]] | None = None,
    ) -> Body:
        """Register the population, append values to its dimensions, or state further ``units``.
        ``fixed`` says of dimensions that look like times of events why they never change.

        Values that one request does not hold go in parts. If that is interrupted, call it again
        with the same arguments: it goes on where it ended. Raise Failed where the population is
        registered otherwise.
        """
        terms = privacy_unit, neighbouring, membership
        begun = {
            name: next(calls.cut(values, calls.PART // len(dimensions)), (0, values))[1]
            for name, values in dimensions.items()
        }
        begin = calls.register_population(*terms, begun, fixed, units)
        if all(len(begun[name]) == len(values) for name, values in dimensions.items()):
            return self.send(begin)
        there = self._registered()
        if there is None or terms != tuple(there[name] for name in _TERMS):
            there = self.send(begin)
        elif there["dimensions"].keys() != dimensions.keys():
            there = self.send(begin)  # which says what is wrong
        for name, values in dimensions.items():
            self.append(name, values, known=there["dimensions"][name], fixed=fixed)
        return self.send(calls.population())

    def append(
        self,
        dimension: str,
        values: Sequence[str],
        *,
        known: Sequence[str] = (),
        fixed: Mapping[str, str] | None = None,
    ) -> None:
        """Append those of ``values``, which are all of a dimension, that are not there yet, in as
        many requests as it takes. ``known`` are the first of them, which are there.
        """
        done = len(known) if list(values[: len(known)]) == list(known) else 0
        for first, part in calls.cut(values, calls.PART, done):
            self.send(calls.append_values(dimension, first, part, fixed))

    def _registered(self) -> Body | None:
        """Return the population; None if there is none."""
        try:
            return self.send(calls.population())
        except Failed as failure:
            if failure.code != "unknown-population":
                raise
        return None

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
        closes: Sequence[str] | None = None,
    ) -> Body:
        """Register a dataset about the population under a short id, or change its owner, labels
        (left out they stay) or parents. If other populations have the same data, ``also`` names all
        of them ("population/dataset"). That is only proposed, and so is what takes the dataset out
        of the scope of a rule that blocks: then the answer has a ``proposal``. It is charged with
        what was used of data made from it: limits in which nothing would fit any more then have to
        be named by ``closes``.
        """
        more = {"labels": labels, "parents": parents, "also": also, "closes": closes}
        fields = {"namespace": namespace, "name": name, "owner": owner, **more}
        return self.send(calls.register_dataset(dataset, **fields))

    def policy(
        self, text: str, *, closes: Sequence[str] = (), proposal_days: int | None = None
    ) -> Body:
        """Adopt a policy file. The first one, and one that loosens the policy in force, are only
        proposed, for ``proposal_days``, by default seven: the answer has a ``proposal`` and its
        ``digest``. Limits in which nothing would fit any more have to be named by ``closes``.
        """
        return self.send(calls.adopt_policy(text, closes, proposal_days))

    def proposals(self, state: str = "any") -> list[Body]:
        """Return the proposals, those that can be confirmed first; only those if ``state`` is
        "proposed".
        """
        return self.send(calls.proposals(state))

    def confirm(self, proposal: int, digest: str, reason: str | None = None) -> Body:
        """Confirm another person's proposal, by the digest of what you read. Needs the key of an
        admin or officer.
        """
        return self.send(calls.confirm(proposal, digest, reason))

    def decline(self, proposal: int, reason: str) -> Body:
        """Decline a proposal, or withdraw your own."""
        return self.send(calls.decline(proposal, reason))

    def key_proposals(self, state: str = "any") -> list[Body]:
        """Return the API keys that were proposed, as ``proposals``. They are no population's."""
        return self.send(calls.proposals(state, of_keys=True))

    def confirm_key(self, proposal: int, digest: str, reason: str | None = None) -> Body:
        """Confirm an API key that another person proposed. Needs the key of an admin or officer."""
        return self.send(calls.confirm(proposal, digest, reason, of_keys=True))

    def decline_key(self, proposal: int, reason: str) -> Body:
        """Decline an API key that was proposed."""
        return self.send(calls.decline(proposal, reason, of_keys=True))

    def state_verification(
        self, size: int, root: str, findings: int, *, decided: bool, reason: str | None = None
    ) -> Body:
        """Record the result of a verification of the first ``size`` events, with the ``root`` over
        them in hex; ``decided``: every decision was taken again. Without findings it is taken only
        of this ledger.
        """
        stated = size, root, findings
        return self.send(calls.state_verification(*stated, decided=decided, reason=reason))

    def approvals(self) -> list[Body]:
        """Return the requests that wait for a person, in the order in which they came: what asks
        for approval, what blocks each now, and what it would do to each account.
        """
        return self.send(calls.approvals())

    def approve(self, grant: str, digest: str, reason: str | None = None) -> Body:
        """Approve another person's request, by the digest of what you read. Return the grant. Needs
        the key of an admin or officer.
        """
        return self.send(calls.approve(grant, digest, reason))

    def decline_grant(self, grant: str, digest: str, reason: str) -> Body:
        """Decline another person's request, with a reason that its client is told."""
        return self.send(calls.decline_grant(grant, digest, reason))
