"""Planted bugs of access control, as in the cluster."""

from __future__ import annotations

from simulation.mutants.cluster import BUGS as OF_CLUSTER
from simulation.mutants.groups.bugs import BUGS

SAME = (
    "rights-remembered-after-changes",
    "gone-users-stay",
    "users-missing-from-whole-copies",
    "answered-before-leases-end",
    "deposed-answers-at-once",
    "masters-always-sure",
    "arrival-proves-following",
    "following-is-not-noticed",
    "first-copies-unheard",
    "slaves-always-sure",
    "passed-on-unchecked",
    "former-passwords-pass",
    "former-masters-name-no-clients",
    "waiting-pulls-keep-rights",
    "journal-forgets-users",
    "repeated-changes-succeed",
    "unsure-brokers-refuse",
)

bug = BUGS.playing("access")
for name in SAME:
    for owner, attribute, wrong in OF_CLUSTER[name]:
        bug(name, owner, attribute)(wrong)
