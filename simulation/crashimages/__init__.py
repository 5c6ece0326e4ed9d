"""Crashes on disks that lose unsynced data. A script that writes a store is killed, or its machine loses power, at many of its
steps. The recovered store is compared with what had been promised."""
