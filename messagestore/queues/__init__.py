"""Consume queues: what they hold, how they are filled, saved and read."""
