"""Definitions of a name server's metrics, in the order in which they are shown; upstream has none."""

from __future__ import annotations

from mqruntime.figures import Figure

BROKERS = Figure("rocketmq_namesrv_brokers", "brokers registered", ours=True)
TOPICS = Figure("rocketmq_namesrv_topics", "topics with a route", ours=True)
