"""A planned change of master: hand-over, and requests that a former master passes on to its successor."""
