"""PySpark pipelines over kbroker, each a script to copy: `python -m spark_examples.NAME --help`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The project's folder; what is fetched or written lands in its `.cache` and `out`."""
