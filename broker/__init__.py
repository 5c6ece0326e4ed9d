"""One broker of a set: it takes its role from the controllers, and stores, serves and replicates messages."""
