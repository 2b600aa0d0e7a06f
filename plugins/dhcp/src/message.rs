// SPDX-License-Identifier: Apache-2.0
//! DHCP messages: the four that are sent, and what is read of an answer. The codec is `dhcproto`'s.

use std::net::Ipv4Addr;

use dhcproto::Encodable;
use dhcproto::error::EncodeError;
use dhcproto::v4::borrowed;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode, UnknownOption};

use crate::lease::Lease;
use crate::options::Options;

/// Who asks, and what all requests have in common.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Option 61 as servers key leases on it: a zero byte and the attachment.
    pub(crate) id: Vec<u8>,
    /// The configuration's options.
    pub(crate) options: Options,
    /// Whether answers are to be broadcast.
    pub(crate) broadcast: bool,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// Any address, preferably this one.
    Discover(Option<Ipv4Addr>),
    /// The address of an offer, under the offer's number (RFC 2131, 4.4.1).
    Select(&'a Answer),
    /// The same lease again, of a client that has just started (`INIT-REBOOT`).
    Reboot(Ipv4Addr),
    /// The same lease for longer, of its server or of any.
    Extend(Ipv4Addr),
}

/// An answer of a server.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The number of the message that it answers.
    pub(crate) xid: u32,
    /// What kind of answer.
    pub(crate) kind: MessageType,
    /// Option 56.
    pub(crate) text: String,
    /// What it offers or grants.
    pub(crate) lease: Lease,
}

/// A message to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// Answers have the same number.
    pub(crate) xid: u32,
    /// The message.
    pub(crate) bytes: Vec<u8>,
}

impl Client {
    /// A client of this name, `<container>/<network>/<interface>`; what an option has no room for is cut off.
    pub(crate) fn new(name: &str, options: Options, broadcast: bool) -> Self {
        let mut id = vec![0];
        id.extend(name.bytes().take(NAME_LIMIT));
        Self { id, options, broadcast }
    }

    /// A request of the interface with the hardware address `mac`.
    pub(crate) fn ask(&self, mac: [u8; 6], ask: Ask<'_>) -> Result<Outgoing, EncodeError> {
        let kind = if matches!(ask, Ask::Discover(_)) { MessageType::Discover } else { MessageType::Request };
        let mut message = self.message(mac, kind);
        let (mut xid, mut ciaddr) = (message.xid(), Ipv4Addr::UNSPECIFIED);
        let options = message.opts_mut();
        options.insert(DhcpOption::MaxMessageSize(LARGEST));
        options.insert(DhcpOption::ParameterRequestList(self.wanted()));
        match ask {
            Ask::Discover(None) => {}
            Ask::Discover(Some(address)) | Ask::Reboot(address) => {
                options.insert(DhcpOption::RequestedIpAddress(address));
            }
            Ask::Select(offer) => {
                xid = offer.xid;
                options.insert(DhcpOption::RequestedIpAddress(offer.lease.address));
                offer.lease.server.map(|server| options.insert(DhcpOption::ServerIdentifier(server)));
            }
            Ask::Extend(address) => ciaddr = address,
        }
        for (code, value) in &self.options.provide {
            // The numbers of padding and end are no options.
            if !matches!(code, 0 | 255) {
                let option = UnknownOption::new(OptionCode::from(*code), value.clone().into_bytes());
                // Replaces, as in the reference, also what was put there above.
                options.remove(OptionCode::from(*code));
                options.insert(DhcpOption::Unknown(option));
            }
        }
        message.set_xid(xid).set_ciaddr(ciaddr);
        // Whoever has an address can be sent to.
        if self.broadcast && ciaddr.is_unspecified() {
            message.set_flags(Flags::default().set_broadcast());
        }
        finished(&message)
    }

    /// The end of the lease of an address that the server granted.
    pub(crate) fn release(
        &self,
        mac: [u8; 6],
        address: Ipv4Addr,
        server: Ipv4Addr,
    ) -> Result<Outgoing, EncodeError> {
        let mut message = self.message(mac, MessageType::Release);
        message.set_ciaddr(address);
        message.opts_mut().insert(DhcpOption::ServerIdentifier(server));
        finished(&message)
    }

    fn message(&self, mac: [u8; 6], kind: MessageType) -> Message {
        // A default message has a random number.
        let mut message = Message::default();
        message.set_chaddr(&mac);
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ClientIdentifier(self.id.clone()));
        message
    }

    fn wanted(&self) -> Vec<OptionCode> {
        let wanted: &[u8] = if self.options.request.is_empty() { &USUAL } else { &self.options.request };
        wanted.iter().map(|code| OptionCode::from(*code)).collect()
    }
}

/// Some servers and relays drop what is shorter than a BOOTP message.
fn finished(message: &Message) -> Result<Outgoing, EncodeError> {
    let mut bytes = message.to_vec()?;
    bytes.resize(bytes.len().max(SHORTEST), 0);
    Ok(Outgoing { xid: message.xid(), bytes })
}

impl Answer {
    /// Reads an answer to the message with the number `xid`; `None` for anything else. The lease's options are read
    /// one by one, and one that is damaged counts as absent.
    pub(crate) fn read(bytes: &[u8], xid: u32, mac: [u8; 6], hop: Option<[u8; 6]>) -> Option<Self> {
        let message = borrowed::Message::new(bytes).ok()?;
        let ours = message.opcode() == Opcode::BootReply && message.xid() == xid;
        // The length comes first: the codec takes it for granted.
        if !ours || message.hlen() != 6 || message.chaddr() != mac {
            return None;
        }
        let read = message.opts().filter(|raw| READ.contains(&u8::from(raw.code())));
        let options: Vec<_> = read.filter_map(|raw| raw.into_option().ok()).collect();
        let lease = Lease::granted(message.yiaddr(), hop, &options);
        let mut answer = Self { xid, kind: MessageType::Unknown(0), text: String::new(), lease };
        for option in options {
            if let DhcpOption::MessageType(kind) = option {
                answer.kind = kind;
            } else if let DhcpOption::Message(text) = option {
                answer.text = text;
            }
        }
        Some(answer)
    }
}

/// Asked for when the configuration leaves nothing.
const USUAL: [u8; 4] = [1, 3, 15, 6];
/// The options of an answer that matter.
const READ: [u8; 13] = [1, 3, 6, 15, 33, 51, 53, 54, 56, 58, 59, 119, 121];
/// One byte is the zero in front.
const NAME_LIMIT: usize = 254;
/// What may be sent to us, in bytes.
const LARGEST: u16 = 1500;
const SHORTEST: usize = 300;

#[cfg(test)]
mod tests;
