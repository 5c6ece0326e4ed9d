"""Messages that go out: pulls, and those that wait."""
