"""A cluster under steady load and drills for hours: its resource use over time, and the outcome of every message."""
