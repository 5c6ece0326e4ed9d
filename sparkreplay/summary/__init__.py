"""What a log holds: counts, sizes and times, added up where the rows are read."""
