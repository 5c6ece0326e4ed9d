"""Whole clusters: controllers, brokers, a name server, clients; their faults and invariants."""
