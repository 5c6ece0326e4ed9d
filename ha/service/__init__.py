"""A broker's replication as the broker uses it: the interface, the service for the master's and slave's roles, and the
status."""
