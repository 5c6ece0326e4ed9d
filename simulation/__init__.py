"""Whole clusters in one thread, driven by one seed: virtual time, an in-memory network, and disks that lose unsynced data."""
