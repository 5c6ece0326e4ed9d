"""The JSON bodies of requests and responses, declared as dataclasses."""
