"""Clients, consumers, producers in transactions and administrators at work in a world."""
