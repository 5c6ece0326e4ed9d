"""The protocol of RocketMQ's DefaultHAService, for a master and slaves with configured roles."""
