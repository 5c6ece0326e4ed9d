"""The commands of mqreplay, one module each; a module holds a click command named `command`."""
