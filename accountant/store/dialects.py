"""Statements of migrations that differ by database.

Triggers are a second fence. The first: the service only appends, and on PostgreSQL its role has no
right to do anything else (``postgres.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

_REFUSAL: Final = "the ledger is append-only"
_FUNCTION: Final = f"""
CREATE OR REPLACE FUNCTION accountant_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'restrict_violation';
END $$
"""
_VACUUM: Final = """
ALTER TABLE text SET (
    autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 0, toast.autovacuum_vacuum_scale_factor = 0
)
"""
"""An erased text is a dead row until the table is vacuumed: one is reason enough."""
PLAIN_BODIES: Final = "ALTER TABLE event SET (toast_tuple_target = 8160)"
"""Events of up to 8 KB stand in their table as they are: compressing one takes the server as long
as all the rest of inserting it.
"""


def word(length: int) -> sa.types.TypeEngine[str]:
    """Return a text type that orders by bytes, in any language of the server."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def words() -> sa.types.TypeEngine[str]:
    """Return such a type of any length."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def sized(dialect: str, name: str, column: str, condition: str) -> sa.CheckConstraint:
    """Return the constraint that ``column`` holds bytes whose number meets ``condition``."""
    if dialect == "postgresql":
        return sa.CheckConstraint(f"octet_length({column}) {condition}", name=name)
    return sa.CheckConstraint(f"typeof({column}) = 'blob' AND length({column}) {condition}", name)


def guards(dialect: str, table: str, places: Sequence[str], *, erasable: bool) -> list[str]:
    """Return statements that make a table append-only; an erasable one may lose rows."""
    verbs = ["UPDATE"] if erasable else ["UPDATE", "DELETE"]
    names = {verb: f"{table}_no_{verb.lower()}" for verb in (*verbs, "TRUNCATE")}
    if dialect == "postgresql":
        return [text for verb in names for text in _refuse(dialect, names[verb], verb, table)]
    refused = [text for verb in verbs for text in _refuse(dialect, names[verb], verb, table)]
    return [*refused, *_no_replace(f"{table}_no_replace", table, places)]


def head_guards(dialect: str) -> list[str]:
    """Return statements that let a head only go forward."""
    table, rewinds = "ledger_head", "NEW.sequence <= OLD.sequence"
    if dialect == "postgresql":
        rewinds += " OR NEW.ledger <> OLD.ledger"
        last = _refuse(dialect, "head_no_truncate", "TRUNCATE", table)
    else:
        last = _no_replace("head_no_replace", table, ())
    return [
        *_refuse(dialect, "head_no_delete", "DELETE", table),
        *_refuse(dialect, "head_no_rewind", "UPDATE", table, rewinds),
        *last,
    ]


def preparations(dialect: str) -> list[str]:
    """Return the statements that come before the guards."""
    return [_FUNCTION, _VACUUM] if dialect == "postgresql" else []


def _no_replace(name: str, table: str, places: Sequence[str]) -> list[str]:
    """Refuse an INSERT OR REPLACE, which fires no DELETE trigger on some connections."""
    same = " AND ".join(f"{place} = NEW.{place}" for place in ("ledger", *places))
    there = f"EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608 (names of our own)
    return _refuse("sqlite", name, "INSERT", table, there)


def _refuse(dialect: str, name: str, verb: str, table: str, when: str = "") -> list[str]:
    """Return statements for a trigger that refuses ``verb``; in a replica's session too."""
    if dialect == "sqlite":
        when = f" WHEN {when}" if when else ""
        refused = f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
        return [f"CREATE TRIGGER {name} BEFORE {verb} ON {table}{when} {refused}"]
    each = "STATEMENT" if verb == "TRUNCATE" else "ROW"
    condition = f"WHEN ({when}) " if when else ""
    return [
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH {each} {condition}"
        "EXECUTE FUNCTION accountant_append_only()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
    ]


def dialect_of(bind: Any) -> str:
    """Return the name of the database that a migration runs on. Raises ValueError."""
    name = str(bind.dialect.name)
    if name not in ("sqlite", "postgresql"):
        raise ValueError(f"{name} is not supported")
    return name
