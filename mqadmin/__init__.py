"""The admin tool: upstream's commands, options and columns, but exit codes that show each failure, and one-line errors."""
