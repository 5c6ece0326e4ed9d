"""What is kept of the log, and for how long."""
