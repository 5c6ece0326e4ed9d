"""Controllers among scripted brokers."""
