"""From bytes to columns: record boundaries, the parts of records, and the rows that are kept."""
