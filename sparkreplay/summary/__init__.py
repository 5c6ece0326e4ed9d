"""Statistics of a log: counts, sizes and times. The workers that read the rows add them up."""
