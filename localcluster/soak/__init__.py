"""A cluster under steady load and drills for hours: what it takes, drawn over time, and what became of every message."""
