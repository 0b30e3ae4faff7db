"""Prints the ids of a table in Nessie, by pyiceberg. PORT: Nessie's; AWS_*: the store"""

import os

from pyiceberg.catalog import load_catalog

catalog = load_catalog(
    "nessie",
    type="rest",
    uri=f"http://127.0.0.1:{os.environ['PORT']}/iceberg",
    **{
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
    },
)
orders = catalog.load_table("lake.orders").scan(selected_fields=("id",)).to_arrow()
print(*sorted(orders["id"].to_pylist()), sep="\n")
