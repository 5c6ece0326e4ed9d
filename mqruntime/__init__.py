"""The outside world as arguments: clock, randomness, files, settings, logging, process start and stop.

Each module is independent: importing one loads no other heavy one (pydantic only in settings, uvloop only in serve)."""
