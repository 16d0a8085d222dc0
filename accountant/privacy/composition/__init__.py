"""Tight totals of schedules that were fixed in advance. They may inform, never admit or block.

Their theorems assume that no mechanism was chosen after seeing an earlier answer; a pipeline that
chooses as it goes is bounded by gates only (privacy/filters). Everything here is computed in
floats, whose errors are bounded and added to delta.
"""
