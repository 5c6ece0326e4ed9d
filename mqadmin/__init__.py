"""The admin tool: upstream's commands, options and columns, with truthful exit codes and one-line errors."""
