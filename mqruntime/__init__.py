"""The outside world as arguments: clock, randomness, files, settings, logging, process start and stop.

Each module stands alone: importing one loads no other heavy one (pydantic only in settings, uvloop only
in serve)."""
