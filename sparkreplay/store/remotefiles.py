"""Stores on file systems of pyarrow.fs, given by a URI (s3://, hdfs:// and others) or as a file system object.

Invariant: the URI (or the file system object that was given) is pickled, and each process opens its own file system from it
once. Secrets in a URI are never shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from sparkreplay.errors import OptionError, SegmentGone, StoreUnreadable
from sparkreplay.store.files import (
    SMALL_FILE_BYTES_MAX,
    Files,
    FolderMember,
    LocalFiles,
    OpenFile,
    in_order,
    small,
)
from sparkreplay.store.segments import SEVERAL_FOLDERS

READ_AHEAD_BYTES = 256 << 10
"""Smaller reads fetch this much at once, because planning reads a few bytes at many places."""
CURES = {
    "s3": "check bucket, region and credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role), also on the workers",
    "hdfs": "set HADOOP_HOME, JAVA_HOME and CLASSPATH so that libhdfs is found, also on the workers",
}
OTHER_CURE = "check the URI and what its file system needs, also on the workers"
NOT_THERE = "is no folder; name a broker's storePathRootDir"


def files_at(path: str) -> Files:
    """The store at a local path, a file:// URI, or a URI that pyarrow.fs supports. Raises OptionError or StoreUnreadable."""
    scheme, separator, _ = path.partition(":")
    if not separator or "/" in scheme:
        return local(path)
    if scheme == "file":
        try:
            place = urlsplit(path)
        except ValueError as error:
            raise OptionError("path", f"{path}: {error}; a file URI is file:///FOLDER") from None
        if place.netloc not in ("", "localhost"):
            raise OptionError("path", f"{path}: names another machine; a file URI is file:///FOLDER")
        return local(unquote(place.path))
    return RemoteFiles(path).found()


def local(path: str) -> LocalFiles:
    if not path or "\0" in path:
        raise OptionError("path", "must name a store: a broker's storePathRootDir")
    if not os.path.isdir(path):
        raise StoreUnreadable(path, f"{NOT_THERE} ({SEVERAL_FOLDERS})" if "," in path else NOT_THERE)
    return LocalFiles(path)


@dataclass(frozen=True)
class RemoteFiles:
    """A folder of a file system of pyarrow.fs. `root` is a URI or, if the file system `given` is set, a path in that file
    system."""

    uri: str = field(repr=False)
    given: fs.FileSystem | None = field(default=None, hash=False)

    @property
    def root(self) -> str:
        return without_secrets(self.uri)

    def shown(self, name: str) -> str:
        place, separator, query = self.root.partition("?")
        return f"{place.rstrip('/')}/{name}{separator}{query}"

    def connect(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the root's path in it."""
        if self.given is not None:
            return self.given, self.uri.rstrip("/")
        try:
            return connected(self.uri)
        except pa.ArrowInvalid as error:
            raise OptionError(
                "path",
                f"{self.root}: {self.reason(error)}; a local folder, file://, s3:// or hdfs:// is expected",
            ) from None

    def found(self) -> RemoteFiles:
        """Return this object if the folder exists, so that errors of a URI are raised on the driver."""
        with self.raising_unreadable(""):
            filesystem, root = self.connect()
            if filesystem.get_file_info(root).type == fs.FileType.Directory:
                return self
        raise StoreUnreadable(self.root, NOT_THERE)

    def entries(self, folder: str) -> list[FolderMember]:
        with self.raising_unreadable(folder):
            filesystem, root = self.connect()
            found = filesystem.get_file_info(fs.FileSelector(f"{root}/{folder}" if folder else root))
        entries = [
            FolderMember(
                info.base_name,
                info.size or 0 if info.type == fs.FileType.File else 0,
                is_folder=info.type == fs.FileType.Directory,
                is_file=info.type == fs.FileType.File,
            )
            for info in found
            if info.base_name
        ]
        return in_order(self.shown(folder), entries)

    def read(self, name: str) -> bytes:
        with self.raising_unreadable(name):
            filesystem, root = self.connect()
            with filesystem.open_input_file(f"{root}/{name}") as file:
                data = bytes(file.read(SMALL_FILE_BYTES_MAX + 1))
        return small(self.shown(name), data)

    def has(self, name: str) -> bool:
        with self.raising_unreadable(name):
            filesystem, root = self.connect()
            return bool(filesystem.get_file_info(f"{root}/{name}").type == fs.FileType.File)

    def open(self, name: str) -> OpenFile:
        with self.raising_unreadable(name):
            filesystem, root = self.connect()
            return RemoteFile(self, name, filesystem.open_input_file(f"{root}/{name}"))

    @contextmanager
    def raising_unreadable(self, name: str) -> Iterator[None]:
        """Turn errors of the file system into an error that names the file and never shows a secret."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise StoreUnreadable(
                self.shown(name) if name else self.root, f"{self.reason(error)}; {self.cure}"
            ) from None

    @property
    def cure(self) -> str:
        return CURES.get(self.uri.partition(":")[0], OTHER_CURE)

    def reason(self, error: Exception) -> str:
        """The first line of the error's text."""
        lines = str(error).replace(self.uri, self.root).strip().splitlines() or [type(error).__name__]
        return lines[0].rstrip(".")


class RemoteFile:
    """Reads ranges of a file into the caller's buffer. Small reads are served from a larger block that is read ahead."""

    def __init__(self, files: RemoteFiles, name: str, file: pa.NativeFile) -> None:
        self.files = files
        self.name = name
        self.file = file
        self.block = memoryview(b"")
        self.block_at = 0

    def read_into(self, view: memoryview, at: int) -> int:
        if len(view) >= READ_AHEAD_BYTES:
            return self.fetch(view, at)
        if not self.block_at <= at <= at + len(view) <= self.block_at + len(self.block):
            block = memoryview(bytearray(READ_AHEAD_BYTES))
            self.block, self.block_at = block[: self.fetch(block, at)], at
        part = self.block[at - self.block_at : at - self.block_at + len(view)]
        view[: len(part)] = part
        return len(part)

    def fetch(self, view: memoryview, at: int) -> int:
        held = 0
        try:
            with self.files.raising_unreadable(self.name):
                self.file.seek(at)
                while held < len(view):
                    got = self.file.readinto(view[held:])
                    if not got:
                        break
                    held += got
        except (FileNotFoundError, StoreUnreadable):
            if self.files.has(self.name):
                raise
            # a remote store does not keep open files
            raise SegmentGone(self.files.shown(self.name)) from None
        return held

    def close(self) -> None:
        self.file.close()


@lru_cache(maxsize=64)
def connected(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system for a URI. A process has only one for each URI."""
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path.rstrip("/")


def without_secrets(uri: str) -> str:
    """The URI without user, password and options, which may hold keys."""
    place, _, _ = uri.partition("?")
    scheme, separator, rest = place.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else place
