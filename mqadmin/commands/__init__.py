"""The commands, one module per subject: their options, pure functions that format their output, and their few requests."""
