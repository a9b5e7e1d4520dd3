"""Writes small Parquet files with four writers and rows.json, what their columns hold.

Run in this directory with pyarrow, duckdb, polars, fastparquet and pandas installed: python make.py
"""
import json

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

TEXT = ["first", None, "", "zweite Zeile\n", "三", "first", "a" * 300, None] * 3
IDS = [[1, 2, 3], [], None, [70000], list(range(40)), [5] * 20] * 2
TALK = [
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
    [],
    None,
    [{"role": "user", "content": None}],
    [{"role": "system", "content": "s"}, {"role": "user", "content": "日本"}, {"role": "assistant", "content": ""}],
]
SHARE = [[{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], None, [{"from": "system", "value": "s"}]]

expected = {}


def note(name, column, rows):
    expected.setdefault(name, {})[column] = rows


def arrow(name, columns, **options):
    table = pa.table(columns)
    pq.write_table(table, name, **options)
    for c in table.column_names:
        note(name, c, table.column(c).to_pylist())


message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
share = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))
text = {"text": pa.array(TEXT)}

for codec in ["none", "snappy", "gzip", "brotli", "zstd"]:
    arrow(f"arrow-{codec}.parquet", text, compression=codec, row_group_size=10)
arrow("arrow-v2pages.parquet", text, data_page_version="2.0", compression="snappy", row_group_size=10)
arrow("arrow-v2pages-plain.parquet", text, data_page_version="2.0", compression="none", use_dictionary=False)
arrow("arrow-plain.parquet", text, use_dictionary=False, write_page_checksum=True)
arrow("arrow-smallpages.parquet", text, data_page_size=64, write_batch_size=4, compression="zstd")
arrow("arrow-required.parquet", {"text": pa.chunked_array([pa.array(["a", "b", "c"])])}, compression="none")
pq.write_table(pa.table({"text": ["a", "b"]}, schema=pa.schema([pa.field("text", pa.string(), nullable=False)])), "arrow-notnull.parquet")
note("arrow-notnull.parquet", "text", ["a", "b"])
arrow("arrow-large.parquet", {"text": pa.array(TEXT, pa.large_string()), "view": pa.array(TEXT, pa.string_view())})
arrow("arrow-deltalength.parquet", text, use_dictionary=False, column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY"}, data_page_size=64, write_batch_size=4)
arrow("arrow-binary.parquet", {"text": pa.array(["x", "y"]).cast(pa.binary()).cast(pa.string())})
arrow("arrow-ids64.parquet", {"input_ids": pa.array(IDS, pa.list_(pa.int64()))}, compression="zstd")
arrow("arrow-ids32.parquet", {"input_ids": pa.array(IDS, pa.list_(pa.int32()))}, use_dictionary=False, data_page_size=32, write_batch_size=5)
arrow("arrow-ids16.parquet", {"input_ids": pa.array([[1, 2], [300]], pa.list_(pa.uint16()))})
arrow("arrow-idsdelta.parquet", {"input_ids": pa.array(IDS, pa.list_(pa.int64()))}, use_dictionary=False, column_encoding={"input_ids.list.element": "DELTA_BINARY_PACKED"})
arrow("arrow-idsnested.parquet", {"input_ids": pa.array(IDS, pa.list_(pa.int32()))}, use_compliant_nested_type=False, data_page_version="2.0")
arrow("arrow-idsfixed.parquet", {"input_ids": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))})
arrow("arrow-messages.parquet", {"messages": pa.array(TALK, message), "conversations": pa.array(SHARE + [None, None], share)}, row_group_size=2)
arrow("arrow-messages-v2.parquet", {"messages": pa.array(TALK, message)}, data_page_version="2.0", compression="gzip", use_dictionary=False)
arrow("arrow-struct.parquet", {"doc": pa.array([{"text": "in"}, None, {"text": None}]), "n": [1, 2, 3], "flags": [True, False, None], "nested": pa.array([[["a"]], [], None])})
arrow("arrow-empty.parquet", {"text": pa.array([], pa.string())})
arrow("arrow-allnull.parquet", {"text": pa.array([None] * 50, pa.string())})
arrow("arrow-oldsequence.parquet", {"messages": pa.array([{"role": ["user", "assistant"], "content": ["q", "a"]}, {"role": [], "content": []}], pa.struct([("role", pa.list_(pa.string())), ("content", pa.list_(pa.string()))]))})

pl.DataFrame({"text": TEXT, "input_ids": IDS * 2}).write_parquet("polars.parquet", compression="zstd", row_group_size=7)
note("polars.parquet", "text", TEXT)
note("polars.parquet", "input_ids", IDS * 2)
pl.DataFrame({"messages": TALK}).write_parquet("polars-messages.parquet", compression="snappy")
note("polars-messages.parquet", "messages", TALK)

db = duckdb.connect()
frame = pa.table({"text": TEXT, "input_ids": pa.array(IDS * 2, pa.list_(pa.int32()))})
db.register("frame", frame)
db.execute("copy (select * from frame) to 'duckdb.parquet' (format parquet, compression zstd)")
db.execute("copy (select text from frame) to 'duckdb-v2.parquet' (format parquet, compression snappy, parquet_version v2)")
note("duckdb.parquet", "text", TEXT)
note("duckdb.parquet", "input_ids", IDS * 2)
note("duckdb-v2.parquet", "text", TEXT)
talk = pa.table({"messages": pa.array(TALK, message)})
db.register("talk", talk)
db.execute("copy (select * from talk) to 'duckdb-messages.parquet' (format parquet, compression gzip)")
note("duckdb-messages.parquet", "messages", TALK)

for codec in ["UNCOMPRESSED", "SNAPPY", "GZIP"]:
    fastparquet.write(f"fastparquet-{codec.lower()}.parquet", pd.DataFrame({"text": TEXT}), compression=codec, row_group_offsets=9)
    note(f"fastparquet-{codec.lower()}.parquet", "text", TEXT)

with open("rows.json", "w", encoding="utf-8") as f:
    json.dump(expected, f, ensure_ascii=False, indent=None, sort_keys=True)
    f.write("\n")
print(len(expected), "files")
