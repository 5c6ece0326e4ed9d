"""Engines that process stretches: this process, processes of this machine, or Spark's workers."""
