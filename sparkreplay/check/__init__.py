"""Whether a replica's bytes are what they should be, and whether replicas agree."""
