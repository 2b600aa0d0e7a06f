// SPDX-License-Identifier: Apache-2.0
//! The two ways to a server: frames on an interface that has no address yet, and UDP from one that has.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recvfrom, sendmsg,
    setsockopt, socket, sockopt,
};

/// What can be talked to a server with. Sending and receiving never wait.
pub(crate) trait Channel {
    /// Sends a message to the server, or to all.
    fn send(&self, message: &[u8]) -> io::Result<()>;
    /// A message that has arrived and the hardware address that it came from; `None` when there is none, or something
    /// else has arrived so often that it is time to look at the clock.
    fn receive(&self) -> io::Result<Option<Received>>;
    /// To wait for the next message with.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// A message, and the hardware address that it came from where that is known.
pub(crate) type Received = (Vec<u8>, Option<[u8; 6]>);

/// An interface, by frames. Broadcasts, and needs neither an address nor a route.
///
/// The socket is not bound to the interface: `packet_do_bind` (net/packet/af_packet.c) waits until all processors have
/// let go of the binding before, which takes longer than the whole conversation with a server.
#[derive(Debug)]
pub(crate) struct Port {
    /// Until it is dropped.
    socket: Option<OwnedFd>,
    address: LinkAddr,
    /// The interface's hardware address.
    pub(crate) mac: [u8; 6],
}

impl Port {
    /// Opens the interface `ifname` of the calling thread's namespace.
    pub(crate) fn open(ifname: &str) -> io::Result<Self> {
        // The address of a packet socket is the one thing that cannot be made by safe means, but the system has it.
        let link = |address: &SockaddrStorage| address.as_link_addr().copied();
        let address: LinkAddr = getifaddrs()?
            .filter(|entry| entry.interface_name == ifname)
            .find_map(|entry| link(&entry.address?))
            .ok_or(Errno::ENODEV)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Other than Ethernet has no DHCP of this form.
        let mac = address.addr().filter(|_| address.halen() == 6).ok_or(Errno::EPROTONOSUPPORT)?;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthIp)?;
        Ok(Self { socket: Some(socket), address, mac })
    }

    /// Sends a message in a frame to one machine.
    pub(crate) fn send_to(
        &self,
        to: [u8; 6],
        source: Ipv4Addr,
        server: Ipv4Addr,
        message: &[u8],
    ) -> io::Result<()> {
        let frame = PacketBuilder::ethernet2(self.mac, to)
            .ipv4(source.octets(), server.octets(), TIME_TO_LIVE)
            .udp(CLIENT_PORT, SERVER_PORT);
        let mut bytes = Vec::with_capacity(frame.size(message.len()));
        frame.write(&mut bytes, message).map_err(io::Error::other)?;
        sendmsg(self.raw(), &[IoSlice::new(&bytes)], &[], MsgFlags::empty(), Some(&self.address))?;
        Ok(())
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("only dropping takes the socket")
    }

    fn raw(&self) -> i32 {
        self.socket().as_raw_fd()
    }
}

impl Drop for Port {
    /// Closes the socket on a thread of its own: `packet_release` waits for all processors, and somebody waits for the
    /// lease.
    fn drop(&mut self) {
        let socket = self.socket.take();
        // A thread that cannot be started closes it here.
        let _ = thread::Builder::new().name("close".to_owned()).spawn(move || drop(socket));
    }
}

impl Channel for Port {
    fn send(&self, message: &[u8]) -> io::Result<()> {
        self.send_to(EVERYBODY, Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, message)
    }

    fn receive(&self) -> io::Result<Option<Received>> {
        let mut buffer = [0; FRAME_LIMIT];
        for _ in 0..FRAMES_AT_ONCE {
            let (length, from) = match recvfrom::<LinkAddr>(self.raw(), &mut buffer) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if from.is_none_or(|from| from.ifindex() != self.address.ifindex()) {
                continue;
            }
            if let Some(received) = unpacked(buffer.get(..length).unwrap_or_default()) {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

/// The message in a frame for a client. Checksums are not looked at: a sender on the same machine leaves them to
/// hardware that is not there.
pub(crate) fn unpacked(frame: &[u8]) -> Option<Received> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(NetSlice::Ipv4(_)) = packet.net else { return None };
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
    let source = <[u8; 6]>::try_from(frame.get(6..12)?).ok()?;
    (udp.destination_port() == CLIENT_PORT).then(|| (udp.payload().to_vec(), Some(source)))
}

/// A server, by UDP from an address that the interface has.
#[derive(Debug)]
pub(crate) struct Direct(UdpSocket);

impl Direct {
    /// From `address` of the interface `ifname` to `server`.
    pub(crate) fn open(ifname: &str, address: Ipv4Addr, server: Ipv4Addr) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddrV4::new(address, CLIENT_PORT))?;
        setsockopt(&socket, sockopt::BindToDevice, &ifname.into())?;
        socket.connect(SocketAddrV4::new(server, SERVER_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl Channel for Direct {
    fn send(&self, message: &[u8]) -> io::Result<()> {
        self.0.send(message).map(drop)
    }

    fn receive(&self) -> io::Result<Option<Received>> {
        let mut buffer = [0; FRAME_LIMIT];
        match self.0.recv(&mut buffer) {
            Ok(length) => Ok(Some((buffer.get(..length).unwrap_or_default().to_vec(), None))),
            // A port that was refused is a server that may come back.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Every machine on the link.
pub(crate) const EVERYBODY: [u8; 6] = [255; 6];
const TIME_TO_LIVE: u8 = 64;
/// Larger than what [`crate::message`] says it takes.
const FRAME_LIMIT: usize = 4096;
/// How many frames of others are passed over before the clock is looked at: little work, and few looks.
const FRAMES_AT_ONCE: usize = 64;
