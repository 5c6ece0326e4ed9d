"""Imports the modules that workers need, once, in the server that forks workers (sparkreplay.engine.processes)."""

from sparkreplay.lean import leave_pandas_out

leave_pandas_out()

import sparkreplay.read.reader  # noqa: E402, F401 - after leave_pandas_out, because this makes arrays
