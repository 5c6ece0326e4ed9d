"""Messages in transactions: half messages, their ends, and the producers that are asked for them."""
