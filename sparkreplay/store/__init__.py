"""A reader's view of a broker's store: its files, segments, epochs and committed bound."""
