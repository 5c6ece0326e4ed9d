"""Integrity of the log: which bytes are checked, which records are damaged, and the scrub that checks them."""
