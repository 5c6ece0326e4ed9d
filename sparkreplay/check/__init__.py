"""Checks of a replica's bytes, and comparison of replicas."""
