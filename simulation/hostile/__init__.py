"""Tables of bytes that no honest peer sends. Each entry is all that is sent over one connection, to a real or a simulated
port."""
