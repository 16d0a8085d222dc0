"""The rule of publication: the witnesses that are asked, and how many of them must agree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, Field, field_validator, model_validator

from accountant.ledger.notes import COSIGNATURE, Verifier

MAX_WITNESSES = 12
"""With the ledger's own signatures a checkpoint has at most 16, which every client accepts."""


class Witness(BaseModel, frozen=True, extra="forbid"):
    """A C2SP witness: its address, and the key that it cosigns with."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s]+$", max_length=500)]
    key: Annotated[str, Field(max_length=400)]

    @field_validator("key")
    @classmethod
    def _cosigns(cls, text: str) -> str:
        if Verifier.from_text(text).kind != COSIGNATURE:
            raise ValueError("a witness cosigns with an Ed25519 cosignature key (type 4)")
        return text

    @property
    def verifier(self) -> Verifier:
        """Its key."""
        return Verifier.from_text(self.key)


class Publication(BaseModel, frozen=True, extra="forbid"):
    """A head counts as published once ``required`` of the witnesses have cosigned it."""

    witnesses: Annotated[list[Witness], Field(max_length=MAX_WITNESSES)] = []
    required: Annotated[int, Field(ge=0, le=MAX_WITNESSES)] = 0

    @model_validator(mode="after")
    def _possible(self) -> Publication:
        names = [witness.verifier.name for witness in self.witnesses]
        if len(set(names)) != len(names):
            raise ValueError("two witnesses have the same name")
        if self.required > len(names):
            raise ValueError(f"{self.required} of {len(names)} witnesses cannot agree")
        return self

    def met_by(self, cosigners: Iterable[str]) -> bool:
        """Return whether enough of the witnesses are among ``cosigners``."""
        names = {witness.verifier.name for witness in self.witnesses}
        return sum(name in names for name in cosigners) >= self.required

    def as_strict(self, old: Publication) -> bool:
        """Return whether at least as many of the same witnesses have to agree as under ``old``."""
        fewer = {witness.key for witness in self.witnesses} <= {w.key for w in old.witnesses}
        return self.required >= old.required and (fewer or old.required == 0)


NO_WITNESSES = Publication()
