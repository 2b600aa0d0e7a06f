// SPDX-License-Identifier: Apache-2.0
//! A server that does what a test tells it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use cnibox_testkit::Sandbox;
use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use nix::sys::socket::{setsockopt, sockopt};

/// What the server heard.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) kind: MessageType,
    /// Where it came from.
    pub(crate) source: Ipv4Addr,
    pub(crate) message: Message,
}

impl Heard {
    pub(crate) fn has(&self, code: OptionCode) -> bool {
        self.message.opts().contains(code)
    }
}

/// What it answers: a kind of message, an address, and options besides.
pub(crate) type Reply = (MessageType, Ipv4Addr, Vec<DhcpOption>);

/// A running server. It ends when this is dropped.
pub(crate) struct Scripted {
    pub(crate) heard: Receiver<Heard>,
    _stop: Sender<()>,
}

/// Starts a server that answers as `script` says; `None` is silence.
pub(crate) fn serve(
    net: &Sandbox,
    mut script: impl FnMut(&Heard) -> Option<Reply> + Send + 'static,
) -> Scripted {
    let socket = net.netns().run(|| UdpSocket::bind("0.0.0.0:67")).unwrap().unwrap();
    socket.set_broadcast(true).unwrap();
    setsockopt(&socket, sockopt::BindToDevice, &"lan".into()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (told, heard) = channel();
    let (stop, stopped) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            let message = Message::decode(&mut Decoder::new(&buffer[..length])).unwrap();
            let SocketAddr::V4(from) = from else { continue };
            let heard = Heard { kind: message.opts().msg_type().unwrap(), source: *from.ip(), message };
            if let Some(reply) = script(&heard) {
                answer(&socket, &heard, reply);
            }
            let _ = told.send(heard);
        }
    });
    Scripted { heard, _stop: stop }
}

fn answer(socket: &UdpSocket, heard: &Heard, (kind, address, options): Reply) {
    let mut message = Message::default();
    message.set_opcode(Opcode::BootReply).set_xid(heard.message.xid()).set_chaddr(heard.message.chaddr());
    message.set_yiaddr(address);
    let all = message.opts_mut();
    all.insert(DhcpOption::MessageType(kind));
    all.insert(DhcpOption::ServerIdentifier(SERVER));
    options.into_iter().for_each(|option| drop(all.insert(option)));
    let to = if heard.source.is_unspecified() { Ipv4Addr::BROADCAST } else { heard.source };
    socket.send_to(&message.to_vec().unwrap(), (to, 68)).unwrap();
}

/// Lease, renewal and rebinding times in seconds, and the mask.
pub(crate) fn terms(lease: u32, renew: u32, rebind: u32) -> Vec<DhcpOption> {
    vec![
        DhcpOption::AddressLeaseTime(lease),
        DhcpOption::Renewal(renew),
        DhcpOption::Rebinding(rebind),
        DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)),
        DhcpOption::Router(vec![SERVER]),
    ]
}

impl Scripted {
    /// The next message of this kind.
    #[track_caller]
    pub(crate) fn hears(&self, kind: MessageType) -> Heard {
        loop {
            let heard = self.heard.recv_timeout(Duration::from_secs(20)).expect("the server hears something");
            if heard.kind == kind {
                return heard;
            }
        }
    }
}

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 1);
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 10);
pub(crate) const SECOND: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 11);
