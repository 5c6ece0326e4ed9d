"""Definition of the metric of access control; upstream has none."""

from __future__ import annotations

from mqruntime.figures import Figure

REFUSED = Figure(
    "rocketmq_access_refused_total",
    "requests refused, by kind: unsigned, unknown user, disabled user, wrong signature, no permission, unsure",
    ("kind",),
    ours=True,
)
