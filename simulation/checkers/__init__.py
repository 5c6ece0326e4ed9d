"""Checkers of a simulated set, from outside. Each computes its expectations from requests, answers and what readers get."""
