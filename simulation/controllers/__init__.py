"""Controllers among brokers that are played by scripts."""
