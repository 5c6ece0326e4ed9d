"""A broker's figures."""
