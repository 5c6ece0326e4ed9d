"""Where stretches are worked on: this process, processes of it, or Spark's workers."""
