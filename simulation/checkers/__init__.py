"""Checkers of a simulated broker set. They look at it from outside: each computes its expectations from requests, their
answers, and the messages that readers get."""
