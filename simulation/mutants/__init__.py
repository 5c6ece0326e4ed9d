"""Bugs that are planted into the product for one run. There is one package for each world whose checks must find them."""
