"""What a broker keeps beside its log, each table in a small file: topics, groups, offsets."""
