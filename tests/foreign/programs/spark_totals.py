"""Runs the SQL that ships with an exported folder on Spark, started in that folder.

Prints a JSON object: query to its rows, everything as text.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

folder, *queries = sys.argv[1:]
os.chdir(folder)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


def statements(name: str) -> list[str]:
    """The statements of a file."""
    lines = Path("sql", f"{name}.sql").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("--"))
    return [statement for statement in text.split(";") if statement.strip()]


for view in [*statements("spark"), *statements("views")]:
    spark.sql(view)
found = {}
for name in queries:
    [query] = statements(name)
    found[name] = [[str(value) for value in row] for row in spark.sql(query).collect()]
sys.stdout.write(json.dumps(found))
