"""Rows as Parquet files, each exactly once."""
