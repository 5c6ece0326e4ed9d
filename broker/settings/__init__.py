"""The settings of a broker, under upstream's keys."""
