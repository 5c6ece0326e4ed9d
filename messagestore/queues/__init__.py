"""Consume queues: their entries, dispatch, files on disk and reading."""
