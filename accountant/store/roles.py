"""The rights of the service's role on PostgreSQL: to append, move a head forward, erase a text."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

RIGHTS: Final = {
    "event": "SELECT, INSERT",
    "node": "SELECT, INSERT",
    "checkpoint": "SELECT, INSERT",
    "cosignature": "SELECT, INSERT",
    "ledger_head": "SELECT, INSERT, UPDATE (sequence, peaks)",
    "text": "SELECT, INSERT, DELETE",
}
_REWRITING: Final = {"UPDATE", "DELETE", "TRUNCATE", "TRIGGER"}
"""Rights on a whole table by which what is written could be changed."""


def grant(connection: Connection, role: str) -> None:
    """Give ``role`` its rights on our tables and revoke all others; for the owner to call."""
    quoted = connection.dialect.identifier_preparer.quote_identifier
    name, here = quoted(role), connection.execute(text("SELECT current_schema()")).scalar_one()
    schema = quoted(here)
    for statement in (
        f"REVOKE ALL ON SCHEMA {schema} FROM {name}",
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}, PUBLIC",
        *(f"GRANT {rights} ON {schema}.{table} TO {name}" for table, rights in RIGHTS.items()),
    ):
        connection.exec_driver_sql(statement)


def excess(connection: Connection) -> list[str]:
    """Return the rights of the present role by which it could rewrite a ledger, in words."""
    rows = connection.execute(
        text(
            "SELECT name, verb FROM unnest(CAST(:names AS text[])) AS name,"
            " unnest(CAST(:verbs AS text[])) AS verb"
            " WHERE has_table_privilege(CAST(name AS regclass), verb) ORDER BY name, verb"
        ),
        {"names": list(RIGHTS), "verbs": sorted(_REWRITING)},
    ).all()
    found: dict[str, list[str]] = {}
    for table, verb in rows:
        if f"{verb}," not in f"{RIGHTS[table]},":  # UPDATE (sequence, peaks) is not UPDATE
            found.setdefault(verb, []).append(table)
    return [f"{verb} on {', '.join(tables)}" for verb, tables in found.items()]
