"""Every kind of query on real data, against a service of its own; a file a family."""

from typing import Final

from examples.queries import local, many, notes, primer, promise, robust

FAMILIES: Final = (primer, notes, promise, local, many, robust)
"""In the order in which they run."""
