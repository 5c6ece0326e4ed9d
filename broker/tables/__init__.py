"""The tables that a broker keeps next to its log, each in a small file: topics, groups, offsets."""
