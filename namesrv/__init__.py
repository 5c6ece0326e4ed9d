"""The name server: live brokers, and the topics that they serve."""
