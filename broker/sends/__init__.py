"""Messages that come in: from clients, from consumers that hand them back, and from the delay queues when they are due."""
