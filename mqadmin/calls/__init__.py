"""The requests of the commands, one module per subject. Each is a coroutine with an `AdminClient`, whose errors it raises."""
