# SPDX-License-Identifier: Apache-2.0
"""An SCTP association's first packet, sent and seen with raw sockets: also where the kernel has no SCTP of its own."""
import select
import socket
import struct

from ..side_by_side import netns

PROTOCOL = 132


def arrives(sender, address, port, receiver, listen, wait=2.0):
    """Whether an INIT that SENDER sends to ADDRESS:PORT comes to RECEIVER with port LISTEN."""
    with netns.inside(receiver):
        ear = socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOL)
    with netns.inside(sender):
        mouth = socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOL)
    with ear, mouth:
        mouth.sendto(_init(40000, port), (address, 0))
        while select.select([ear], [], [], wait)[0]:
            packet = ear.recv(2048)
            source, target = struct.unpack_from(">HH", packet, (packet[0] & 15) * 4)
            if (source, target) == (40000, listen):
                return True
    return False


def _init(source, target):
    """A common header and an INIT chunk (RFC 9260, 3.3.2), its checksum in place."""
    chunk = struct.pack(">BBHIIHHI", 1, 0, 20, 0x11223344, 65536, 1, 1, 1)
    packet = bytearray(struct.pack(">HHII", source, target, 0, 0) + chunk)
    packet[8:12] = struct.pack("<I", _crc32c(bytes(packet)))
    return bytes(packet)


def _crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
