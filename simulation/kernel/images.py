"""Images of simulated disks: take one, like a volume's snapshot, and set a disk back to one.

Invariant: an image shares no file with its disk, and is restored once."""

from __future__ import annotations

from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.inode import Inode

Image = dict[str, Inode]
"""An image: the files by path."""


def image_of(disk: SimulatedDisk) -> Image:
    """An image of all files as processes see them, synced or not. After the image is restored, all of it is durable."""
    copies = {inode: inode.copy() for inode in disk.entries.values()}
    return {path: copies[inode] for path, inode in disk.entries.items()}


def restore(disk: SimulatedDisk, image: Image) -> None:
    """Set the disk back to its state when `image` was taken. No process may use the disk."""
    disk.wipe()
    for path, inode in image.items():
        disk.entries[path] = inode
        disk.make_durable(path, inode)
