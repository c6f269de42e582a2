"""Requests that all become readable at once."""

import socket
import time
import urllib.parse

import pytest


def identity_request(fleet):
    return (f"GET /api/v2/auth/identity HTTP/1.1\r\nHost: holdfast\r\n"
            f"Authorization: Bearer {fleet.key('agent')}\r\n\r\n").encode()


def answer_read(connection):
    """The head and the whole body of one answer."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += piece_read(connection)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
    while len(body) < length:
        body += piece_read(connection)
    return head


def piece_read(connection):
    piece = connection.recv(65536)
    assert piece, "the connection was closed without an answer"
    return piece


@pytest.mark.parametrize("count", [127, 128, 129, 256])
def test_a_burst_on_kept_connections_is_answered_at_once(fleet, count):
    """libmicrohttpd reads 128 events at a time; with exactly so many it waited for more, a minute long."""
    address = urllib.parse.urlsplit(fleet.url)
    request = identity_request(fleet)
    connections = [socket.create_connection((address.hostname, address.port), timeout=10) for _ in range(count)]
    try:
        for connection in connections:
            connection.sendall(request)
            assert answer_read(connection).startswith(b"HTTP/1.1 200")
        fleet.pause("ingest-1")
        try:
            for connection in connections:
                connection.sendall(request)
            time.sleep(0.2)  # nothing tells when the kernel has delivered them all
        finally:
            fleet.resume("ingest-1")
        for connection in connections:
            assert answer_read(connection).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()
