"""The name server: the live brokers and the topics that these brokers serve."""
