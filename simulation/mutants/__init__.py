"""Bugs that are planted into the product for the length of a run, by the world whose checks must find them."""
