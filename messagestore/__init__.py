"""The message store: what its folders share (record format, checkpoint, errors), and log, queues, index, dispatch, store."""
