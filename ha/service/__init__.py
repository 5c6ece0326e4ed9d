"""A broker's replication as the broker sees it: the interface, the service that swaps its ends, its status."""
