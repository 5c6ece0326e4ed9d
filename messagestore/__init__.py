"""The message store. Its folders are log, queues, index, dispatch, scrub, bulk and store; they share the modules here."""
