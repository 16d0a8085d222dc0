"""Setting a population up: an administrator's work, apart from what pipelines do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from accountant.client.transport import Connected, Transport


class Registrar(Connected):
    """Registers a population with its datasets and adopts its policy. Needs an admin's key.

    Every call may be repeated: registering what is there already changes nothing.
    """

    def __init__(self, url: str, key: str, population: str, *, timeout: float = 10.0) -> None:
        super().__init__(population, Transport(url, key, timeout=timeout, attempts=5, backoff=0.25))

    def population(
        self,
        *,
        privacy_unit: str,
        neighbouring: str,
        membership: str,
        dimensions: Mapping[str, Sequence[str]],
    ) -> dict[str, Any]:
        """Registers the population, or appends values to its dimensions."""
        body = {
            "privacy_unit": privacy_unit,
            "neighbouring": neighbouring,
            "membership": membership,
            "dimensions": dimensions,
        }
        return self._put("", body)

    def dataset(
        self, dataset: str, *, namespace: str, name: str, owner: str | None = None
    ) -> dict[str, Any]:
        """Registers a dataset about the population under a short id."""
        body = {"namespace": namespace, "name": name}
        return self._put(f"/datasets/{dataset}", body | ({"owner": owner} if owner else {}))

    def policy(self, text: str, *, approver_key: str | None = None) -> dict[str, Any]:
        """Adopts a policy file. Loosening the one in force takes a second person's key."""
        headers = {"Accountant-Approver": f"Bearer {approver_key}"} if approver_key else {}
        put = self._transport.put
        return dict(put(f"{self._at}/policy", text.encode(), "application/yaml", headers))

    def _put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        content = json.dumps(body, ensure_ascii=False).encode()
        return dict(self._transport.put(self._at + path, content, "application/json"))
