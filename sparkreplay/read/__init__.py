"""One read: what was asked for, how it is cut into stretches, and how a stretch becomes batches."""
