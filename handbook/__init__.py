"""The documentation as a site: ``python -m handbook`` writes it to ``docs-site/``.

The pages are the Markdown of this repository, in the order of ``docs/README.md``, and three that
are made from the code: the HTTP interface, the Python client, the options of the command line. The
site loads nothing from elsewhere and can be read from a folder, also without scripts; only its
search is one. ADR 0053 says why it is made so.
"""

from handbook.building import build

__all__ = ["build"]
