"""Transactional messages: half messages, their outcomes, and the checks that producers get."""
