# SPDX-License-Identifier: Apache-2.0
"""Sends packets: a server socket in one namespace, a client socket in another."""
import select
import socket

from . import netns

WAIT = 0.6  # seconds; everything is on one machine


def connect(step):
    """Tries one exchange; says whether it worked and whom the server saw.

    STEP: from, server (namespaces), to, port (what the client uses), listen (server's port), proto.
    """
    family = socket.AF_INET6 if ":" in step["to"] else socket.AF_INET
    kind = socket.SOCK_DGRAM if step.get("proto") == "udp" else socket.SOCK_STREAM
    with netns.inside(step["server"]):
        server = socket.socket(family, kind)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", step["listen"]))
    with netns.inside(step["from"]):
        client = socket.socket(family, kind)
    with server, client:
        client.settimeout(WAIT)
        return _datagram(server, client, step) if kind == socket.SOCK_DGRAM else _stream(server, client, step)


def _stream(server, client, step):
    server.listen()
    try:
        client.connect((step["to"], step["port"]))
    except OSError as e:
        return {"reached": False, "error": type(e).__name__}
    if not select.select([server], [], [], WAIT)[0]:
        return {"reached": False, "error": "answered by another"}
    accepted, peer = server.accept()
    accepted.close()
    return {"reached": True, "peer": peer[0]}


def _datagram(server, client, step):
    client.sendto(b"ping", (step["to"], step["port"]))
    if not select.select([server], [], [], WAIT)[0]:
        return {"reached": False, "error": "TimeoutError"}
    data, peer = server.recvfrom(16)
    server.sendto(data, peer)
    back = bool(select.select([client], [], [], WAIT)[0])
    return {"reached": back, "peer": peer[0]}
