"""Records in files and out of them, and records chosen among others: shared by the command and the console.

`items` is what a reader of a file gives; `json_records` and `csv_records` are formats of text, `arrow` and
`parquet_records` tables; `record_filter` is the language by which records are looked for, `sieve` decodes and judges
them, `latest` keeps the last of each key, `pace` slows down. All but `replay` and `parquet_records` are pure.
"""
