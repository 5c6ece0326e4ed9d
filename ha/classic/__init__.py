"""The protocol of RocketMQ's DefaultHAService: a master and slaves with configured roles."""
