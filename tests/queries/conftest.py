"""The fixtures of these tests: ledgers of the real service."""

from opening import comes_and_goes, opened, replaces

__all__ = ["comes_and_goes", "opened", "replaces"]
