"""Errors of the replication service, each with its facts.

Invariant: no error leaves a role change half done. The caller may retry or go offline."""

from __future__ import annotations


class HAError(Exception):
    """The base class of the errors below."""


class EpochFenced(HAError):
    """A role change has an older epoch than an epoch that this broker has already accepted."""

    def __init__(self, epoch: int, newest: int) -> None:
        super().__init__(f"epoch {epoch} is older than epoch {newest}, which this broker already knows")
        self.epoch = epoch
        self.newest = newest


class EpochHistoryMissing(HAError):
    """The log has data, but its epochs are unknown, so the log cannot be compared with other logs."""

    def __init__(self, log_end: int) -> None:
        super().__init__(
            f"the log ends at {log_end} but no epoch is known for it; restore the epoch file, "
            "or remove the whole store so that this broker joins as a new replica"
        )
        self.log_end = log_end


class ReplicasUnread(HAError):
    """The controllers did not return the replicas of the set; the error's text names the reason."""


class MasterUnread(HAError):
    """A master did not return the contents of its log; the error's text names the reason."""


class RangeUnserved(HAError):
    """A slave needs bytes of the log that this broker cannot send as they were written."""

    def __init__(self, offset: int, size: int, why: str) -> None:
        super().__init__(f"{size} bytes of the log at {offset} cannot be sent: {why}")
        self.offset = offset
        self.size = size
        self.why = why


class StoreOfSet(HAError):
    """The log was written under controllers, but this broker is configured as a member of a pair."""

    def __init__(self, epoch_file: str, epoch: int) -> None:
        super().__init__(
            f"{epoch_file}: this log was written under controllers, up to epoch {epoch}, and enableControllerMode is false. "
            "A pair records no epochs, so the log could never return to controllers. Set enableControllerMode=true, or start "
            "the pair with an empty storePathRootDir"
        )


class EpochFileForeign(HAError):
    """The epoch file belongs to another log. With this file, differences between this log and the other replicas' logs would
    not be found."""

    def __init__(self, name: str, binding: str, epoch: int, offset: int, why: str) -> None:
        super().__init__(
            f"{name}: epoch {epoch} at {offset}: {why}. Restore this store's own epoch file ({name}.bak may still be it); "
            "or empty the store, brokerIdentity included, and the broker fetches the log from its master as a new replica. "
            f"If a Java broker or an older version ran on this store since, remove {binding}: the file is then taken as it is"
        )
        self.name = name
        self.epoch = epoch
        self.offset = offset
        self.why = why


class HACannotListen(HAError):
    """The HA port cannot be opened; the error's text names the remedy."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"haListenPort {host}:{port}: {why}")
        self.host = host
        self.port = port


class HAAddressInUse(HACannotListen):
    """Another process listens on the HA port."""
