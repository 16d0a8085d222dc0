"""Benchmarks: ``make bench`` prints a table and writes ``bench/results/latest.json``.

Whatever is compared is measured side by side in one run and given as a ratio, since absolute times
belong to one machine.
"""
