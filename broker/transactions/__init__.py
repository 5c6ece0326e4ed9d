"""Transactional messages: half messages, their outcomes, and the checks sent to producers."""
