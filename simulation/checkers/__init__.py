"""Judges of a simulated set, from outside: each computes what it expects from what was asked, answered and shown."""
