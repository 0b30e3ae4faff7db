"""PySpark pipelines over kbroker, each a script to copy: `python -m spark_examples.NAME --help`."""
