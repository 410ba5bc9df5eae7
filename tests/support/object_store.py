"""An object store of one bucket for tests: as much of the protocol S3 as is needed to list and to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "kept"


@contextmanager
def object_store(folder: Path, key: str = "reader") -> Iterator[str]:
    """The address of a running store: files of a folder are its objects, for whoever signs with this key."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            bucket, _, name = unquote(parts.path).strip("/").partition("/")
            if f"Credential={key}/" not in self.headers.get("Authorization", ""):
                self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            elif bucket != BUCKET:
                self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
            elif not name:
                self._answer(200, _listing(folder, parse_qs(parts.query).get("prefix", [""])[0]))
            elif (folder / name).is_file():
                self._object((folder / name).read_bytes())
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_HEAD = do_GET  # noqa: N815 - the name is the library's

        def _object(self, content: bytes) -> None:
            wanted = self.headers.get("Range")
            if not wanted:
                self._answer(200, content)
                return
            first, last = wanted.removeprefix("bytes=").split("-")
            end = min(int(last), len(content) - 1) if last else len(content) - 1
            self._answer(206, content[int(first) : end + 1], f"bytes {first}-{end}/{len(content)}")

        def _answer(self, status: int, body: bytes, content_range: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Mon, 05 Jan 2026 10:00:00 GMT")
            self.send_header("Accept-Ranges", "bytes")
            if content_range:
                self.send_header("Content-Range", content_range)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _listing(folder: Path, prefix: str) -> bytes:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    objects = "".join(
        f"<Contents><Key>{escape(quote(name))}</Key><Size>{(folder / name).stat().st_size}</Size><ETag>x</ETag>"
        f"<LastModified>{datetime(2026, 1, 5, tzinfo=UTC):%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
        for name in names
        if name.startswith(prefix)
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>".encode()
