"""From bytes to columns: record boundaries, parts of records, and row filters."""
