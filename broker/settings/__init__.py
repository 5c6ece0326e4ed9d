"""What a broker can be told, under upstream's keys."""
