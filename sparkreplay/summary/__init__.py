"""Statistics of a log: counts, sizes and times, added up where the rows are read."""
