"""A small asyncio client: one producer, one pull consumer, topic routes and the message encodings they
need."""
