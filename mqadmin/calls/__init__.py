"""The requests that commands send, one module per subject. Each is a coroutine that raises the errors of its `AdminClient`."""
