"""Definitions of the metrics of a server's network, in the order in which they are shown; upstream has none."""

from __future__ import annotations

from mqruntime.figures import Figure

EXPIRES = Figure(
    "rocketmq_tls_certificate_seconds_left",
    "until this server's certificate expires; below 0 afterwards. Alarm below 30 days",
    ours=True,
)
RELOADS = Figure("rocketmq_tls_reloads_total", "changed TLS files that were taken", ours=True)
FAILED_RELOADS = Figure(
    "rocketmq_tls_failed_reloads_total",
    "changed TLS files that could not be used; the former ones stay",
    ours=True,
)
