"""Images of simulated disks: what a snapshot of the volume holds, and a disk that is set back to one.

Invariant: an image shares no file with the disk that it was taken of, and is restored once."""

from __future__ import annotations

from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.inode import Inode

Image = dict[str, Inode]
"""By path."""


def image_of(disk: SimulatedDisk) -> Image:
    """All files as processes see them; durable once the image is restored."""
    copies = {inode: inode.copy() for inode in disk.entries.values()}
    return {path: copies[inode] for path, inode in disk.entries.items()}


def restore(disk: SimulatedDisk, image: Image) -> None:
    """The disk, which no process has, is what it was when `image` was taken."""
    disk.wipe()
    for path, inode in image.items():
        disk.entries[path] = inode
        disk.make_durable(path, inode)
