"""Requests that wait for budget, and which of them is admitted next (ADR 0033, 0043, 0051).

``tree.py``: sorted values that share what did not change; ``asked.py``: a request that waits;
``shares.py``: the order that a policy names; ``queue.py``: who waits, and where each is filed;
``lines.py``: which are about the same; ``groups.py``: the cells of all; ``prices.py``: what they
cost now; ``tight.py``: where to look first; ``looking.py``: what the evaluator says of one;
``refiling.py``: filing all anew; ``due.py``: the next admission. ``due`` is the only one that
decides; it asks the evaluator.
"""
