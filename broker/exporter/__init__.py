"""Prometheus metrics and probes of a broker."""
