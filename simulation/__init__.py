"""Whole clusters in one thread from one seed: virtual time, an in-memory network, a forgetful disk."""
