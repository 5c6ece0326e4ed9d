"""Messages that go out: pulls, those that wait, and what a subscription wants."""
