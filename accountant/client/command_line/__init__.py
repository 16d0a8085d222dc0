"""``accountant`` where there is no database: it asks a service, at ``ACCOUNTANT_URL``.

It needs httpx2 and the standard library, as the client does. Exit code 0: success; 1: refused, or a
check failed; 2: misuse, or no answer.
"""

from accountant.client.command_line.program import main

__all__ = ["main"]
