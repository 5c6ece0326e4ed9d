"""Imported by the server that forks workers (sparkreplay.engine.processes), so that the workers need not import each module."""

from sparkreplay.lean import leave_pandas_out

leave_pandas_out()

import sparkreplay.read.reader  # noqa: E402, F401 - after leave_pandas_out, because this makes arrays
