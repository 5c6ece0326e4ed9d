"""Outbound calls of a broker: to name servers and its master."""
