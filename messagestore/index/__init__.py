"""Index files: records by key."""
