"""Makes errors of the data source appear without tracebacks."""

from __future__ import annotations

from sparkreplay.errors import ReplayError


class UserErrors:
    """Raises a ReplayError without its traceback. Spark prints tracebacks, but only the message matters."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ReplayError):
            raise error.with_traceback(None) from None
