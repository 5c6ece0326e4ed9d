"""The live view of broker sets: it asks the servers, combines their answers, and draws the result."""
