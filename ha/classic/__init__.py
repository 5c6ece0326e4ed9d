"""The two ends of a classic link: a master and slaves whose roles their configuration says."""
