// SPDX-License-Identifier: Apache-2.0
//! The request engine: numbering, acknowledgements, dumps and their retries. The verbs are in the modules of their objects.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

use netlink_packet_core::{
    DoneMessage, ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST, NetlinkBuffer, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable, Parseable,
};

use crate::Error;
use crate::sieve::{attribute, sieve};
use crate::socket::Socket;

/// An rtnetlink connection to the namespace it was opened in, wherever the thread goes later.
#[derive(Debug)]
pub struct Rtnl {
    socket: Socket,
    sequence: u32,
    /// Whether a list may be what was seen last.
    foreign: bool,
}

impl Rtnl {
    /// Connects to the calling thread's current namespace.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: Socket::open()?, sequence: 0, foreign: false })
    }

    /// As [`Rtnl::open`], in a namespace whose owner may change it all the time and would only deceive himself: a list
    /// that never comes whole is what was seen last, not an error.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn open_foreign() -> Result<Self, Error> {
        Ok(Self { foreign: true, ..Self::open()? })
    }

    /// A number of the connection's namespace that no other gets before the next boot; `None` before Linux 5.14.
    pub fn netns_cookie(&self) -> Option<u64> {
        self.socket.netns_cookie()
    }

    /// Sends a request that changes something and waits for the acknowledgement. `flags` are added to
    /// `NLM_F_REQUEST | NLM_F_ACK`.
    pub(crate) fn change<M: Message>(&mut self, message: M, flags: u16) -> Result<(), Error> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        self.replies::<M>().map(drop)
    }

    /// Sends a request that is answered by one message.
    pub(crate) fn ask<M: Message>(&mut self, message: M) -> Result<M, Error> {
        self.ask_with(message, 0)
    }

    /// As [`Rtnl::ask`], with more flags.
    pub(crate) fn ask_with<M: Message>(&mut self, message: M, flags: u16) -> Result<M, Error> {
        self.send(message, NLM_F_REQUEST | flags)?;
        self.replies::<M>()?.messages.pop().ok_or(Error::NoAnswer)
    }

    /// Dumps, again and again while the kernel says that the dump was interrupted by a change. What cannot be decoded is
    /// left out.
    pub(crate) fn dump<M: Message + Clone>(&mut self, message: &M) -> Result<Vec<M>, Error> {
        self.dump_of(message, self.foreign)
    }

    /// As [`Rtnl::dump`], of a namespace that may be `foreign` ([`Rtnl::open_foreign`]) while the socket's own is not.
    pub(crate) fn dump_of<M: Message + Clone>(
        &mut self,
        message: &M,
        foreign: bool,
    ) -> Result<Vec<M>, Error> {
        let attempt = || {
            self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            self.replies::<M>()
        };
        whole(foreign, attempt)
    }

    fn send<M: Message>(&mut self, message: M, flags: u16) -> Result<(), Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut datagram = vec![0; packet.buffer_len()];
        packet.serialize(&mut datagram);
        self.socket.send(&datagram)
    }

    /// Everything that answers the last request: one message, an acknowledgement, or a dump up to its end.
    fn replies<M: Message>(&mut self) -> Result<Replies<M>, Error> {
        let mut replies = Replies { messages: Vec::new(), interrupted: false };
        loop {
            let sequence = self.sequence;
            for packet in packets::<M>(self.socket.receive()?) {
                let packet = packet?;
                // Left over from a request whose answer was given up on, for example after a decoding error.
                if packet.header.sequence_number == sequence && replies.take(packet)? {
                    return Ok(replies);
                }
            }
        }
    }
}

/// Messages of the route family, and the few that are encoded here because its crate lacks them.
pub(crate) trait Message: NetlinkSerializable + NetlinkDeserializable {}

impl<M: NetlinkSerializable + NetlinkDeserializable> Message for M {}

/// The messages of the first attempt that was not interrupted.
fn whole<M>(foreign: bool, mut attempt: impl FnMut() -> Result<Replies<M>, Error>) -> Result<Vec<M>, Error> {
    for _ in 1..DUMP_ATTEMPTS {
        let replies = attempt()?;
        if !replies.interrupted {
            return Ok(replies.messages);
        }
    }
    let last = attempt()?;
    if last.interrupted && !foreign { Err(Error::DumpInterrupted) } else { Ok(last.messages) }
}

struct Replies<M> {
    messages: Vec<M>,
    interrupted: bool,
}

impl<M: Message> Replies<M> {
    /// Takes one packet; true if it was the last.
    fn take(&mut self, packet: Packet<M>) -> Result<bool, Error> {
        let NetlinkHeader { flags, .. } = packet.header;
        self.interrupted |= flags & NLM_F_DUMP_INTR != 0;
        let multipart = flags & netlink_packet_core::NLM_F_MULTIPART != 0;
        match packet.payload {
            Ok(NetlinkPayload::InnerMessage(message)) => {
                self.messages.push(message);
                Ok(!multipart)
            }
            Ok(NetlinkPayload::Error(error)) => acknowledged(&error, flags).map(|()| true),
            Ok(NetlinkPayload::Done(done)) => finished(&done).map(|()| true),
            Ok(NetlinkPayload::Noop | NetlinkPayload::Overrun(_) | _) => Ok(false),
            // None of many says nothing about the others.
            Err(_) if multipart => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// One message of a datagram.
pub(crate) struct Packet<M> {
    header: NetlinkHeader,
    pub(crate) payload: Result<NetlinkPayload<M>, Error>,
}

/// The packets of one datagram, up to the first that says something impossible about its length.
pub(crate) fn packets<M: Message>(mut datagram: &[u8]) -> impl Iterator<Item = Result<Packet<M>, Error>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let packet = NetlinkBuffer::new_checked(&datagram).map_err(Error::decode);
        let next = packet.as_ref().map_or(datagram.len(), |packet| packet.length() as usize);
        let packet = packet.and_then(|packet| {
            let header = NetlinkHeader::parse(&packet).map_err(Error::decode)?;
            Ok(Packet { payload: payload(&header, packet), header })
        });
        datagram = datagram.get(next.next_multiple_of(4)..).unwrap_or_default();
        Some(packet)
    })
}

fn payload<M: Message>(
    header: &NetlinkHeader,
    packet: NetlinkBuffer<&&[u8]>,
) -> Result<NetlinkPayload<M>, Error> {
    if header.message_type < NLMSG_MIN_TYPE {
        return Ok(NetlinkMessage::<M>::parse(&packet).map_err(Error::decode)?.payload);
    }
    let payload = sieve(header.message_type, packet.payload());
    M::deserialize(header, &payload).map(NetlinkPayload::InnerMessage).map_err(Error::decode)
}

fn acknowledged(error: &ErrorMessage, flags: u16) -> Result<(), Error> {
    if error.code.is_none() {
        return Ok(());
    }
    let kernel_text =
        (flags & NLM_F_ACK_TLVS != 0).then(|| after_request(&error.header, flags)).and_then(kernel_text);
    Err(Error::Refused { errno: error.raw_code().saturating_abs(), kernel_text })
}

fn finished(done: &DoneMessage) -> Result<(), Error> {
    if done.code >= 0 {
        return Ok(());
    }
    Err(Error::Refused { errno: done.code.saturating_abs(), kernel_text: kernel_text(&done.extended_ack) })
}

/// The attributes behind the request that an error message repeats: its header only if "capped", else all of it.
fn after_request(repeated: &[u8], flags: u16) -> &[u8] {
    let length = if flags & NLM_F_CAPPED != 0 {
        NETLINK_HEADER
    } else {
        repeated.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length)) as usize
    };
    repeated.get(length.next_multiple_of(4)..).unwrap_or_default()
}

/// `NLMSGERR_ATTR_MSG` among the attributes of an extended acknowledgement.
fn kernel_text(attributes: &[u8]) -> Option<String> {
    let text = attribute(attributes, NLMSGERR_ATTR_MSG)?;
    Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
}

const NETLINK_HEADER: usize = 16;
/// Below are acknowledgements, ends of dumps and their like.
const NLMSG_MIN_TYPE: u16 = 0x10;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The Go plugins give up after five interrupted dumps; a busy node deserves a few more.
const DUMP_ATTEMPTS: usize = 20;

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;

    /// A message's header and what it is about, in this machine's byte order.
    fn datagram(kind: u16, flags: u16, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let length = u32::try_from(NETLINK_HEADER + body.len()).unwrap();
        let numbers = [7u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat();
        [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &numbers, &body].concat()
    }

    /// What Linux 6.18 answers to `ip link set br1 master br0` on a socket with `NETLINK_CAP_ACK` (port number changed).
    fn refusal() -> Vec<u8> {
        let text = b"Can not enslave a bridge to a bridge\0\0\0\0";
        let attribute = [41u16.to_ne_bytes(), NLMSGERR_ATTR_MSG.to_ne_bytes()].concat();
        datagram(2, 0x300, &[&(-libc::ELOOP).to_ne_bytes(), &request(), &attribute, text])
    }

    fn request() -> Vec<u8> {
        let kind = [19u16.to_ne_bytes(), 5u16.to_ne_bytes()].concat();
        [&40u32.to_ne_bytes()[..], &kind, &7u32.to_ne_bytes(), &0u32.to_ne_bytes()].concat()
    }

    fn take(datagram: &[u8]) -> Result<bool, Error> {
        let packet = packets::<RouteNetlinkMessage>(datagram).next().unwrap()?;
        Replies { messages: Vec::new(), interrupted: false }.take(packet)
    }

    #[test]
    fn refusals_keep_errno_and_the_kernels_text() {
        let error = take(&refusal()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ELOOP));
        assert_eq!(error.kernel_text(), Some("Can not enslave a bridge to a bridge"));
    }

    #[test]
    fn acknowledgements_end_a_request() {
        let ack = datagram(2, 0x300, &[&0i32.to_ne_bytes(), &request()]);
        assert!(take(&ack).unwrap());
    }

    #[test]
    fn failed_dumps_are_errors() {
        let done = datagram(3, 2, &[&(-libc::ENODEV).to_ne_bytes()]);
        assert_eq!(take(&done).unwrap_err().errno(), Some(libc::ENODEV));
    }

    #[test]
    fn a_dump_that_a_change_interrupted_is_noticed_to_its_end() {
        let done = |flags| datagram(3, flags, &[&0i32.to_ne_bytes()]);
        let interrupted = |datagram: &[u8]| {
            let packet = packets::<RouteNetlinkMessage>(datagram).next().unwrap().unwrap();
            let mut replies = Replies { messages: Vec::new(), interrupted: false };
            assert!(replies.take(packet).unwrap());
            replies.interrupted
        };
        assert!(!interrupted(&done(0x02)));
        assert!(interrupted(&done(0x12)));
    }

    #[test]
    fn dumps_that_never_come_whole_are_an_error_or_what_was_seen_last() {
        let restless = |seen: &mut usize| {
            *seen += 1;
            Ok(Replies { messages: vec![*seen], interrupted: true })
        };
        let mut seen = 0;
        assert!(matches!(whole(false, || restless(&mut seen)), Err(Error::DumpInterrupted)));
        assert_eq!(seen, DUMP_ATTEMPTS);
        assert_eq!(whole(true, || restless(&mut seen)).unwrap(), [2 * DUMP_ATTEMPTS]);
        let mut rests_at_last = || {
            seen += 1;
            Ok(Replies { messages: vec![seen], interrupted: seen != 3 * DUMP_ATTEMPTS })
        };
        assert_eq!(whole(false, &mut rests_at_last).unwrap(), [3 * DUMP_ATTEMPTS]);
    }

    #[test]
    fn what_cannot_be_decoded_is_left_out_of_a_list_and_fails_a_question() {
        let message = |flags: u16| {
            // An RTM_NEWADDR that is too short, and an end of the dump.
            let too_short: &[u8] = &[2, 24, 0, 0];
            [datagram(20, flags, &[too_short]), datagram(3, 2, &[&[0; 4]])].concat()
        };
        let ends = |datagram: &[u8]| {
            let mut replies = Replies { messages: Vec::new(), interrupted: false };
            let packets = packets::<RouteNetlinkMessage>(datagram);
            packets.map(|packet| replies.take(packet.unwrap())).collect::<Vec<_>>()
        };
        assert!(matches!(ends(&message(2))[..], [Ok(false), Ok(true)]));
        assert!(matches!(ends(&message(0))[..], [Err(Error::Decode { .. }), Ok(true)]));
    }

    #[test]
    fn garbage_is_an_error_and_ends_the_datagram() {
        let mut packets = packets::<RouteNetlinkMessage>(&[1, 2, 3]);
        assert!(matches!(packets.next(), Some(Err(Error::Decode { .. }))));
        assert!(packets.next().is_none());
    }
}
