"""Bytes that two parties could read in two ways are one request or none at all: nothing is smuggled behind it."""

import json
import socket
import urllib.parse

import pytest

from scene import Scene


@pytest.fixture(scope="module")
def scene(fleet):
    return Scene(fleet)


def talk(scene, sent, timeout=3):
    """Sends bytes, gives all that comes until the end; b'...' and whether the server closed."""
    url = urllib.parse.urlsplit(scene.fleet.url)
    with socket.create_connection((url.hostname, url.port), timeout=timeout) as connection:
        connection.sendall(sent)
        got = b""
        try:
            while piece := connection.recv(65536):
                got += piece
        except TimeoutError:
            return got, False
        except ConnectionResetError:
            pass
        return got, True


def request(scene, head, body=b"", path="/api/v2/actions", method="POST"):
    lines = [f"{method} {path} HTTP/1.1", "Host: holdfast", f"Authorization: Bearer {scene.operator.key}"]
    return "\r\n".join(lines).encode() + b"\r\n" + head + b"\r\n" + body


# A second request, hidden in what should be a body. If it were served its marker would come back as a 404.
HIDDEN = b"GET /hidden-in-a-body HTTP/1.1\r\nHost: x\r\n\r\n"


def chunked(*chunks):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


REFUSED = {
    "two lengths": (b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(HIDDEN), HIDDEN),
    "two equal lengths": (b"Content-Length: 2\r\nContent-Length: 2\r\n", b"{}"),
    "a list of lengths": (b"Content-Length: 2, 2\r\n", b"{}"),
    "length and chunked": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN),
    "chunked and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + HIDDEN),
    "gzip": (b"Transfer-Encoding: gzip\r\n", HIDDEN),
    "chunked, identity": (b"Transfer-Encoding: chunked, identity\r\n", chunked(b"{}") + HIDDEN),
    "identity": (b"Transfer-Encoding: identity\r\n", HIDDEN),
    "xchunked": (b"Transfer-Encoding: xchunked\r\n", chunked(b"{}") + HIDDEN),
    "two encodings": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunked(b"{}") + HIDDEN),
    "space before the colon": (b"Content-Length : %d\r\n" % len(HIDDEN), HIDDEN),
    "space before the encoding's colon": (b"Transfer-Encoding : chunked\r\n", chunked(b"{}") + HIDDEN),
    "tab before the colon": (b"Content-Length\t: %d\r\n" % len(HIDDEN), HIDDEN),
    "folded encoding": (b"Transfer-Encoding:\r\n chunked\r\n", chunked(b"{}") + HIDDEN),
    "negative length": (b"Content-Length: -1\r\n", HIDDEN),
    "plus length": (b"Content-Length: +2\r\n", b"{}" + HIDDEN),
    "hex length": (b"Content-Length: 0x2\r\n", b"{}" + HIDDEN),
    "huge length": (b"Content-Length: 99999999999999999999999\r\n", HIDDEN),
    "no length": (b"Content-Length: \r\n", HIDDEN),
    "oversize chunk": (b"Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "negative chunk": (b"Transfer-Encoding: chunked\r\n", b"-2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "hex chunk": (b"Transfer-Encoding: chunked\r\n", b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "no chunk": (b"Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "chunk too long": (b"Transfer-Encoding: chunked\r\n", b"1\r\n{}\r\n0\r\n\r\n" + HIDDEN),
    "bare CR": (b"X-A: b\rContent-Length: 44\r\nContent-Length: 0\r\n", HIDDEN),
    "no colon": (b"Content-Length 44\r\n", HIDDEN),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_smuggled(scene, name):
    head, body = REFUSED[name]
    got, closed = talk(scene, request(scene, head, body), timeout=2)
    assert b"hidden" not in got and b" 404 " not in got and b" 200 " not in got, got
    assert closed, got
    if got:
        status = int(got.split(b" ", 2)[1])
        assert status in (400, 413, 431, 501), got


def test_plain_requests_after_each_other(scene):
    """The same with nothing wrong: both are served, so that the tests above can fail."""
    for head, body in ((b"Content-Length: 2\r\n", b"{}"), (b"Transfer-Encoding: chunked\r\n", chunked(b"{", b"}"))):
        got, _ = talk(scene, request(scene, head, body) + HIDDEN, timeout=1)
        assert got.count(b"HTTP/1.1 ") == 2 and got.count(b" 404 ") == 1, got


@pytest.mark.parametrize("extension", [b"2;a=b\r\n{}\r\n0\r\n\r\n", b"0002\r\n{}\r\n0\r\n\r\n"])
def test_a_chunk_with_an_extension_is_one_body(scene, extension):
    got, _ = talk(scene, request(scene, b"Transfer-Encoding: chunked\r\n", extension) + HIDDEN, timeout=1)
    first = got.split(b"HTTP/1.1 ")[1]
    assert first.startswith(b"400") and got.count(b"HTTP/1.1 ") <= 2, got


@pytest.mark.parametrize("path", ["/api/v2/actions/a%00b", "/api/v2/actions/..%2f..%2fsecrets", "/api/v2/actions/../secrets",
                                  "/api/v2/actions/%2e%2e/secrets", "/api/v2//actions", "/api/v2/actions/%0d%0aX-A:%20b",
                                  "/api/v2/actions/a%zz"])
def test_a_path_means_what_it_says(scene, path):
    got, _ = talk(scene, request(scene, b"", method="GET", path=path), timeout=1)
    status = int(got.split(b" ", 2)[1])
    assert status in (400, 404), got
    envelope = json.loads(got.partition(b"\r\n\r\n")[2])
    assert envelope["success"] is False and b"X-Request-Id: req_" in got
    assert b"\r\nX-A:" not in got
