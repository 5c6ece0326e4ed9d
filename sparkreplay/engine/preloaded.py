"""Imported by the server that forks workers (sparkreplay.engine.processes), so that they need not import it one by one."""

from sparkreplay.engine.lean import leave_pandas_out

leave_pandas_out()

import sparkreplay.read.reader  # noqa: E402, F401 - only now, because this makes arrays
