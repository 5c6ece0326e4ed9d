"""Statistics of a log: counts, sizes and times. They are added up by the workers that read the rows."""
