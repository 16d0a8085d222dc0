"""Tight totals of lists of mechanisms that were fixed in advance. They inform and never block, but
for a declared plan, which is verified and charged as one step.

Their theorems assume that no mechanism was chosen after an earlier answer was seen; privacy filters
alone bound a pipeline that chooses as it goes (privacy/filters.py). What informs is computed in
floats, whose errors are bounded and added to delta; what verifies a plan, in whole numbers.
"""
