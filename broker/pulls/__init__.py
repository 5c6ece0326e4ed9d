"""Outgoing messages: pulls, and held pulls."""
