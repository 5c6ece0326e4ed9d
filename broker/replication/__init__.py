"""What an acknowledgement waits for, and the sends that wait for it."""
