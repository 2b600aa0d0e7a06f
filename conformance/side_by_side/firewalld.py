# SPDX-License-Identifier: Apache-2.0
"""A system bus with firewalld on it, as much of both as the firewall plugin talks to.

    python3 -m conformance.side_by_side.firewalld SOCKET

Every zone call is noted in /run/firewalld.log, which is part of the compared
state. The zone "invalid" is refused, a source that is there already as well.
"""
import os
import re
import socket
import struct
import sys

LOG = "/run/firewalld.log"
CALL, RETURN, ERROR = 1, 2, 3
OWNERS = {"org.freedesktop.DBus": "org.freedesktop.DBus", "org.fedoraproject.FirewallD1": ":1.1"}


class Connection:
    """One client of the bus."""

    def __init__(self, sock, sources):
        self.sock, self.sources, self.serial = sock, sources, 0

    def serve(self):
        """SASL, then messages until the client goes."""
        self._authenticate()
        while True:
            head = self._read(16)
            if not head:
                return
            order = "<" if head[:1] == b"l" else ">"
            body_length, serial, fields_length = struct.unpack(order + "III", head[4:16])
            fields = self._read((fields_length + 7) // 8 * 8)
            body = self._read(body_length)
            if head[1] == CALL:
                self._answer(order, serial, fields, body)

    def _authenticate(self):
        self._read(1)  # the NUL that carries credentials
        while True:
            line = b""
            while not line.endswith(b"\r\n"):
                byte = self._read(1)
                if not byte:
                    raise EOFError
                line += byte
            if line.startswith(b"BEGIN"):
                return
            if line.startswith(b"AUTH EXTERNAL"):
                self.sock.sendall(b"OK 1234deadbeef1234deadbeef12345678\r\n")
            elif line.startswith(b"NEGOTIATE_UNIX_FD"):
                self.sock.sendall(b"AGREE_UNIX_FD\r\n")
            else:
                self.sock.sendall(b"REJECTED EXTERNAL\r\n")

    def _read(self, n):
        data = b""
        while len(data) < n:
            part = self.sock.recv(n - len(data))
            if not part:
                return b""
            data += part
        return data

    def _answer(self, order, serial, fields, body):
        # Header fields are strings with a one-byte code in front; the member
        # (code 3) is all that is needed to tell the calls apart.
        member = re.search(rb"\x03\x01s\x00(?:....)([A-Za-z]+)\x00", fields, re.S).group(1).decode()
        args = _strings(order, body)
        if member == "Hello":
            self._return(serial, "s", [":1.7"])
        elif member == "GetNameOwner":
            self._owner(serial, args[0])
        elif member == "NameHasOwner":
            self._return(serial, "b", [args[0] in OWNERS])
        elif member in ("addSource", "removeSource", "querySource"):
            self._zone(serial, member, args)
        else:
            self._return(serial, "", [])

    def _owner(self, serial, name):
        if name in OWNERS:
            self._return(serial, "s", [OWNERS[name]])
        else:
            self._error(serial, "org.freedesktop.DBus.Error.NameHasNoOwner", "no such name")

    def _zone(self, serial, member, args):
        with open(LOG, "a") as f:
            f.write("%s %s\n" % (member, " ".join(args)))
        zone, source = args[:2]
        if zone == "invalid":
            self._error(serial, "org.fedoraproject.FirewallD1.Exception", "INVALID_ZONE: invalid")
        elif member == "querySource":
            self._return(serial, "b", [source in self.sources])
        elif member == "addSource" and source in self.sources:
            self._error(serial, "org.fedoraproject.FirewallD1.Exception", "ZONE_ALREADY_SET: '%s' already bound" % source)
        elif member == "removeSource" and source not in self.sources:
            self._error(serial, "org.fedoraproject.FirewallD1.Exception", "UNKNOWN_SOURCE: '%s'" % source)
        else:
            (self.sources.add if member == "addSource" else self.sources.discard)(source)
            self._return(serial, "s", [zone])

    def _return(self, serial, signature, values):
        self._send(RETURN, serial, signature, values)

    def _error(self, serial, name, text):
        self._send(ERROR, serial, "s", [text], name)

    def _send(self, kind, reply_to, signature, values, error=None):
        body = b"".join(struct.pack("<I", v) if isinstance(v, bool) else _string(v) for v in values)
        fields = b"\x05\x01u\x00" + struct.pack("<I", reply_to)
        fields += _field(7, "s", "org.freedesktop.DBus", fields)
        if error:
            fields += _field(4, "s", error, fields)
        if signature:
            pad = b"\0" * (-len(fields) % 8)
            fields += pad + b"\x08\x01g\x00" + bytes([len(signature)]) + signature.encode() + b"\0"
        self.serial += 1
        head = b"l" + bytes([kind, 1, 1]) + struct.pack("<III", len(body), self.serial, len(fields))
        self.sock.sendall(head + fields + b"\0" * (-len(fields) % 8) + body)


def _field(code, signature, value, before):
    """A header field, aligned to 8 after what is there already."""
    return b"\0" * (-len(before) % 8) + bytes([code, 1]) + signature.encode() + b"\0" + _string(value)


def _string(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data + b"\0"


def _strings(order, body):
    """The strings a body consists of (all calls here take only strings)."""
    out, at = [], 0
    while at + 4 <= len(body):
        at += -at % 4
        n, = struct.unpack_from(order + "I", body, at)
        out.append(body[at + 4:at + 4 + n].decode())
        at += 4 + n + 1
    return out


def main(path):
    """Serves clients one after the other: the plugins run one at a time."""
    sources = set()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen()
    os.rename(path + ".new", path)
    while True:
        sock, _ = listener.accept()
        with sock:
            try:
                Connection(sock, sources).serve()
            except (EOFError, ConnectionError):
                pass


if __name__ == "__main__":
    main(sys.argv[1])
