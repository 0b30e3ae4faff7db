"""Records in files and out of them, and records chosen among others: shared by the command and the console.

`line_records`, `json_records` and `csv_records` are formats of text, `arrow` and `parquet_records` tables, `items` what
their readers give; `times` reads when people say that reading begins; `record_filter` is the language by which records
are looked for, `sieve` decodes and judges them, `latest` keeps the last of each key; `replay` sends records on, at a
pace; `log_entries` reads a log's files without a node. All but `log_entries`, `replay` and `parquet_records` are pure.
Topics are read and written by `kbroker.client.reader` and `producer`. Begin with `items`.
"""
