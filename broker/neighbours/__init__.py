"""Outbound calls of a broker, to name servers and to its master."""
