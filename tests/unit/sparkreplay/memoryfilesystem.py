"""Files in a dictionary as a pyarrow file system, and behind the S3 protocol on a port of its own."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs


def content_of(folder: Path, below: str) -> dict[str, bytes]:
    """All files of a folder, by their path below `below`."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {f"{below}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


class MemoryHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """The reading half of a file system. A reader never writes."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content

    def get_type_name(self) -> str:
        return "memory"

    def info(self, path: str) -> fs.FileInfo:
        if path in self.content:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.content[path]))
        folder = any(name.startswith(f"{path}/") for name in self.content)
        return fs.FileInfo(path, fs.FileType.Directory if folder else fs.FileType.NotFound)

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self.info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        below = f"{selector.base_dir}/"
        names = {below + name[len(below) :].split("/")[0] for name in self.content if name.startswith(below)}
        if not names:
            raise FileNotFoundError(selector.base_dir)
        return [self.info(name) for name in names]

    def open_input_file(self, path: str) -> pa.NativeFile:
        if path not in self.content:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.content[path])

    def normalize_path(self, path: str) -> str:
        return path

    def refused(self, *_: object, **__: object) -> Any:
        raise AssertionError("a store is never written")

    open_input_stream = open_output_stream = open_append_stream = copy_file = move = delete_file = refused
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = refused


def memory_file_system(content: dict[str, bytes]) -> fs.FileSystem:
    return fs.PyFileSystem(MemoryHandler(content))


class S3Requests(BaseHTTPRequestHandler):
    """The few requests that reading takes: list, head, ranged get."""

    protocol_version = "HTTP/1.1"
    content: dict[str, bytes]
    access_key: str
    ranges: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(place.query).items()}
        bucket, _, key = unquote(place.path).strip("/").partition("/")
        if f"Credential={self.access_key}/" not in self.headers.get("Authorization", ""):
            self.answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        elif not any(name.startswith(f"{bucket}/") for name in self.content):
            self.answer(404, b"<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>")
        elif "list-type" in query:
            self.answer(200, self.listing(bucket, query.get("prefix", "")))
        elif f"{bucket}/{key}" not in self.content:
            self.answer(404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
        else:
            self.answer_object(self.content[f"{bucket}/{key}"])

    def listing(self, bucket: str, prefix: str) -> bytes:
        below = f"{bucket}/{prefix}"
        found: dict[str, str] = {}
        for name, data in self.content.items():
            if name.startswith(below):
                rest = name[len(below) :]
                key = posixpath.join(prefix, rest.split("/")[0]) if "/" in rest else prefix + rest
                found[key] = "" if "/" in rest else str(len(data))
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>"
            if size
            else f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"
            for key, size in found.items()
        )
        head = f"<Name>{bucket}</Name><Prefix>{prefix}</Prefix><KeyCount>{len(found)}</KeyCount>"
        return (
            f"<ListBucketResult>{head}<IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        )

    def answer_object(self, data: bytes) -> None:
        asked = self.headers.get("Range")
        if asked is None:
            self.answer(200, data)
            return
        self.ranges.append(asked)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        end = min(int(last) + 1, len(data))
        self.answer(206, data[int(first) : end], {"Content-Range": f"bytes {first}-{end - 1}/{len(data)}"})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ((headers or {}) | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def s3_server(content: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serves `content` (bucket/key) on loopback; yields (options of an s3:// URI, the ranges asked for)."""
    ranges: list[str] = []
    handler = type("Handler", (S3Requests,), {"content": content, "access_key": "reader", "ranges": ranges})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    try:
        yield f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{server.server_port}", ranges
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
