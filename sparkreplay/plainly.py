"""How errors leave the data source."""

from __future__ import annotations

from sparkreplay.errors import ReplayError


class ToldPlainly:
    """A ReplayError leaves without its way through our code: Spark prints tracebacks, and the message is what counts."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ReplayError):
            raise error.with_traceback(None) from None
