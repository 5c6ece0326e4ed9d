"""Integrity of the log's bytes: which were checked, which are damaged, and the scrub that checks them."""
