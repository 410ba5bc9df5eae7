"""History for people who ask why: every record as Parquet, read with DuckDB (docs/history.md).

`recorder` writes files whose names say which records are in them; `catalogue` shows them as views and macros; `report`
and `whatif` answer questions. Never imported by the engines or the guard.
"""
