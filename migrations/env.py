"""Runs migrations on the connection that ``accountant migrate`` hands over."""

from alembic import context

from accountant.store.tables import METADATA

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
