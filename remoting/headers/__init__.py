"""The typed headers of requests and responses, one dataclass each, flattened into a command's ext."""
