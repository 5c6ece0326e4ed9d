"""One module per command: its options, its pure output format, and the few calls it makes."""
