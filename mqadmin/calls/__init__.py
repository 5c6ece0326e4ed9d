"""The requests of the commands, one module per subject; each is a coroutine on an `AdminClient` and raises its
errors."""
