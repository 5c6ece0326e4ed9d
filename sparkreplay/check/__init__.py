"""Checks of one replica's bytes, and comparisons of replicas with each other."""
