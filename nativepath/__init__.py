"""The hot path of sends and of dispatch as one small compiled module, which is optional; see presence."""
