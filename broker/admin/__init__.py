"""Requests of administrators and of tools."""
