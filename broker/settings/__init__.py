"""Settings of a broker, under upstream's keys."""
