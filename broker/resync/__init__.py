"""A slave that sets its store aside and copies its master's log from the start."""
