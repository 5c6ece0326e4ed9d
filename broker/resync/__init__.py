"""A slave sets its store aside, and copies its master's log from the start."""
