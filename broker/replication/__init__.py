"""The end of the log that may be acknowledged, and the sends that wait for their acknowledgement."""
