"""A cluster of real processes on one machine: its files and ports, its processes, its drills."""
