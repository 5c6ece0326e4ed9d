"""The live view of broker sets: what is asked of whom, what follows from it, and how it is drawn."""
