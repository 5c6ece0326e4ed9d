"""The live view of broker sets: its requests, its conclusions, and its drawing."""
