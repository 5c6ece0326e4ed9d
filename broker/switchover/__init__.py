"""A planned change of master: the hand-over, and the requests that a former master passes on to its successor."""
