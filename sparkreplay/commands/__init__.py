"""The commands of mqreplay. Each module holds one click command, named `command`."""
