"""Crashes on disks that lose unsynced data. A script is killed, or its machine loses power, at each of its steps. What
recovers is compared with what was promised."""
