"""Outgoing messages: pulls, and pulls that wait."""
