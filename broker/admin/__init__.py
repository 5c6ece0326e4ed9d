"""Requests of administrators and tools."""
