"""Requests that wait for budget, and which of them is admitted next (ADR 0033).

``tree.py``: sorted values that share what did not change; ``shares.py``: the order that a policy
names; ``queue.py``: who waits, and where each is filed; ``due.py``: the next admission. ``due`` is
the only one that decides; it asks the evaluator.
"""
