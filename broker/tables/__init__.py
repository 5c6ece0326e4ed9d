"""Tables of a broker next to its log, each in a small file: topics, groups, offsets."""
