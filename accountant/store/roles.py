"""What the service's role may do on PostgreSQL: append, move a head forward, and erase a text."""

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
    """Gives ``role`` its rights on our tables and takes any others; for the owner to call."""
    name = connection.dialect.identifier_preparer.quote_identifier(role)
    schema = connection.dialect.identifier_preparer.quote_identifier(
        connection.execute(text("SELECT current_schema()")).scalar_one()
    )
    statements = [
        f"REVOKE ALL ON SCHEMA {schema} FROM {name}",
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}, PUBLIC",
        *(f"GRANT {rights} ON {schema}.{table} TO {name}" for table, rights in RIGHTS.items()),
    ]
    for statement in statements:
        connection.exec_driver_sql(statement)


def excess(connection: Connection) -> list[str]:
    """Rights of the present role by which it could rewrite a ledger, in words."""
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
