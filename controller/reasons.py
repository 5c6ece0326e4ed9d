"""Why an election was held, in the words that logs, 1005 and `mqadmin watch` use.

Invariant: who elects someone who may lack what was acknowledged says so with the suffix UNCLEAN. Pure."""

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
