"""One broker of a set: takes its role from the controllers, stores and serves messages, replicates them."""
