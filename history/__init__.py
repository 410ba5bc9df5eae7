"""History: all records as Parquet files, read with DuckDB (docs/history.md).

`recorder` writes files named after their range of records; `catalogue` shows them as views and macros; `report`
and `whatif` answer questions. Never imported by the engines or the guard.
"""
