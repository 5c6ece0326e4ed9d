"""Stores on what pyarrow.fs knows: s3://, hdfs://, gs:// and others by URI, or a file system object that is handed in.

Invariant: what is pickled is the URI (or the object); each process opens its own file system from it, once. Secrets in a URI
are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from sparkreplay.errors import OptionError, StoreUnreadable
from sparkreplay.files import (
    SMALL_FILE_BYTES_MAX,
    Entry,
    Files,
    LocalFiles,
    OpenFile,
    small,
    told_as_unreadable,
)

READ_AHEAD_BYTES = 256 << 10
"""Reads smaller than this fetch so much at once: planning looks at many places of a few bytes."""
CURES = {
    "s3": "check bucket, region and credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role), also on the workers",
    "hdfs": "set HADOOP_HOME, JAVA_HOME and CLASSPATH so that libhdfs is found, also on the workers",
}


def files_at(path: str) -> Files:
    """The store at a local path, a file:// URI, or a URI that pyarrow.fs knows. Raises OptionError, StoreUnreadable."""
    scheme, separator, _ = path.partition(":")
    if not separator or "/" in scheme or not scheme:
        return local(path)
    if scheme == "file":
        place = urlsplit(path)
        if place.netloc not in ("", "localhost"):
            raise OptionError("path", f"{path}: names another machine; a file URI is file:///FOLDER")
        return local(unquote(place.path))
    remote = RemoteFiles(path)
    remote.connect()  # so that what is wrong with it is said on the driver
    return remote


def local(path: str) -> LocalFiles:
    if not path or "\0" in path:
        raise OptionError("path", "must name a store: a broker's storePathRootDir")
    return LocalFiles(path)


@dataclass(frozen=True)
class RemoteFiles:
    """A folder of a file system that pyarrow.fs knows. `root` is a URI; with `given`, a file system, it is a path in that."""

    uri: str = field(repr=False)
    given: fs.FileSystem | None = None

    @property
    def root(self) -> str:
        return without_secrets(self.uri)

    def shown(self, name: str) -> str:
        place, separator, query = self.root.partition("?")
        return f"{place.rstrip('/')}/{name}{separator}{query}"

    def connect(self) -> tuple[fs.FileSystem, str]:
        """The file system and the root's path in it."""
        if self.given is not None:
            return self.given, self.uri.rstrip("/")
        return connected(self.uri)

    def entries(self, folder: str) -> list[Entry]:
        with self.told(folder):
            filesystem, root = self.connect()
            found = filesystem.get_file_info(fs.FileSelector(f"{root}/{folder}"))
        entries = [
            Entry(
                info.base_name,
                info.size or 0 if info.type == fs.FileType.File else 0,
                is_folder=info.type == fs.FileType.Directory,
                is_file=info.type == fs.FileType.File,
            )
            for info in found
            if info.base_name
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def read(self, name: str) -> bytes:
        with self.told(name):
            filesystem, root = self.connect()
            with filesystem.open_input_file(f"{root}/{name}") as file:
                data = bytes(file.read(SMALL_FILE_BYTES_MAX + 1))
        return small(self.shown(name), data)

    def open(self, name: str) -> OpenFile:
        with self.told(name):
            filesystem, root = self.connect()
            return RemoteFile(self, name, filesystem.open_input_file(f"{root}/{name}"))

    @contextmanager
    def told(self, name: str) -> Iterator[None]:
        with told_as_unreadable(self.shown(name)):
            yield


class RemoteFile:
    """Ranged reads into the caller's buffer; small ones are served from a block that is read ahead."""

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
        with self.files.told(self.name):
            self.file.seek(at)
            while held < len(view):
                got = self.file.readinto(view[held:])
                if not got:
                    break
                held += got
        return held

    def close(self) -> None:
        self.file.close()


@lru_cache(maxsize=64)
def connected(uri: str) -> tuple[fs.FileSystem, str]:
    scheme = uri.partition(":")[0]
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        raise OptionError(
            "path",
            f"{without_secrets(uri)}: {first_line(error)}; a local folder, file://, s3:// or hdfs:// is expected",
        ) from None
    except (OSError, pa.ArrowException) as error:
        cure = CURES.get(scheme, "check the URI and its credentials")
        raise StoreUnreadable(without_secrets(uri), f"{first_line(error)}; {cure}") from None
    return filesystem, path.rstrip("/")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def without_secrets(uri: str) -> str:
    """The URI without user, password and options, which may hold keys."""
    place, _, _ = uri.partition("?")
    scheme, separator, rest = place.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else place
