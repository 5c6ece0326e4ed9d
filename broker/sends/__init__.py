"""Messages to store: sends of clients, messages that consumers send back, and due messages of the delay levels."""
