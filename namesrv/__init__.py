"""The name server: which brokers live, and which topics they serve."""
