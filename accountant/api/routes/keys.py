"""The call of a key about itself: another secret in its place."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StrictInt

from accountant.api.access import Authorization, Body, Call, TheService, caller, known_parameters
from accountant.api.answers import Json
from accountant.api.models import keys as models
from accountant.auth.keys import Key, key_digest
from accountant.auth.ring import NEVER
from accountant.auth.rotation import HOURS, MOST_HOURS
from accountant.door.keys import secret_of
from accountant.ledger.events import rfc3339

router = APIRouter(prefix="/v1/keys", dependencies=[Depends(known_parameters)], tags=["own key"])
Holder = Annotated[Key, Depends(caller("admin", "pipeline", "officer", "auditor", anywhere=True))]


class RotateKey(BaseModel, frozen=True, extra="forbid"):
    """For how long the old key goes on."""

    hours: Annotated[StrictInt, Field(ge=0, le=MOST_HOURS)] = Field(
        HOURS, description="hours that the old key goes on"
    )


@router.post("/rotate", status_code=201)
@Call(models.Rotated, RotateKey, topics="rotating")
def rotate_key(
    key: Holder, body: Body, service: TheService, authorization: Authorization = None
) -> JSONResponse:
    """Make another secret in place of the key that is sent.

    It has the same name, role, scope and end; keep it, for it is shown only once. The old key goes
    on for `hours`, and cannot be rotated again. No second person is needed: nobody can do more.
    """
    asked = RotateKey.model_validate(body)
    digest = key_digest(secret_of(authorization or ""))
    secret, new, old = service.rotate_key(digest, asked.hours)
    told: models.Rotated = {
        "key": secret,
        "name": new.name,
        "role": new.role,
        "old_until": rfc3339(old.until),
    }
    if new.populations is not None:
        told["populations"] = sorted(new.populations)
    if new.until != NEVER:
        told["until"] = rfc3339(new.until)
    return Json(told, 201, {"Cache-Control": "no-store"})
