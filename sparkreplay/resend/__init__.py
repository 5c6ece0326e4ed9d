"""Sends the committed messages of a store again, into a live cluster."""
