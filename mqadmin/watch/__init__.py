"""The live view of broker sets: the requests, the conclusions, and the drawing."""
