"""Benchmarks: ``make bench`` prints a table and writes ``bench/results/latest.json``.

Whatever is compared is measured side by side in one run and given as a ratio, since absolute times
belong to one machine.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the service sets it
