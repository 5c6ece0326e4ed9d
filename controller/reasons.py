"""Reasons of elections, as shown in the log, in the reply to CONTROLLER_GET_METADATA_INFO (1005) and by `mqadmin watch`.

Invariant: the reason has the suffix UNCLEAN if the elected broker may be missing acknowledged data. Pure."""

from __future__ import annotations

FIRST_ELECTION = "first election"
CONNECTION_LOST = "connection lost"
HEARTBEAT_LOST = "heartbeat lost"
NEVER_HEARD = "never heard"
BROKER_RESTARTED = "broker restarted"
OPERATOR_ASKED = "operator asked"
NO_MASTER = "no master"
NOT_IN_ITS_SET = "not in its set"
YIELDED = "could not lead"
UNCLEAN = ", unclean"
