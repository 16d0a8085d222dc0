"""accountant: the service an organisation trusts to know how much privacy it has spent."""

__version__ = "0.2.0"
