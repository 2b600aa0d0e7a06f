// SPDX-License-Identifier: Apache-2.0
//! The request engine: numbering, acknowledgements, dumps and their retries. The verbs are in the modules of their objects.

use netlink_packet_core::{
    DoneMessage, ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlaBuffer, NlasIterator,
};

use crate::{Error, Socket};

/// An rtnetlink connection to the namespace it was opened in, wherever the thread goes later.
#[derive(Debug)]
pub struct Rtnl {
    socket: Socket,
    sequence: u32,
}

impl Rtnl {
    /// Connects to the calling thread's current namespace.
    ///
    /// # Errors
    /// [`Error::Socket`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self { socket: Socket::open()?, sequence: 0 })
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

    /// Dumps, again and again while the kernel says that the dump was interrupted by a change.
    pub(crate) fn dump<M: Message + Clone>(&mut self, message: &M) -> Result<Vec<M>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            self.send(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            let replies = self.replies::<M>()?;
            if !replies.interrupted {
                return Ok(replies.messages);
            }
        }
        Err(Error::DumpInterrupted)
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

struct Replies<M> {
    messages: Vec<M>,
    interrupted: bool,
}

impl<M: Message> Replies<M> {
    /// Takes one packet; true if it was the last.
    fn take(&mut self, packet: NetlinkMessage<M>) -> Result<bool, Error> {
        let NetlinkHeader { flags, .. } = packet.header;
        self.interrupted |= flags & NLM_F_DUMP_INTR != 0;
        let multipart = flags & netlink_packet_core::NLM_F_MULTIPART != 0;
        match packet.payload {
            NetlinkPayload::InnerMessage(message) => {
                self.messages.push(message);
                Ok(!multipart)
            }
            NetlinkPayload::Error(error) => acknowledged(&error, flags).map(|()| true),
            NetlinkPayload::Done(done) => finished(&done).map(|()| true),
            NetlinkPayload::Noop | NetlinkPayload::Overrun(_) | _ => Ok(false),
        }
    }
}

/// The packets of one datagram.
pub(crate) fn packets<M: Message>(
    mut datagram: &[u8],
) -> impl Iterator<Item = Result<NetlinkMessage<M>, Error>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let packet = NetlinkMessage::<M>::deserialize(datagram).map_err(Error::decode);
        let length = datagram.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length)) as usize;
        // What cannot be decoded may have a wrong length too: nothing after it counts.
        let next = if packet.is_ok() { length.next_multiple_of(4) } else { datagram.len() };
        datagram = datagram.get(next..).unwrap_or_default();
        Some(packet)
    })
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
    NlasIterator::new(attributes)
        .filter_map(|attribute: Result<NlaBuffer<&[u8]>, _>| attribute.ok())
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned())
}

/// Decodes every packet of a datagram in every way that this crate knows. For fuzz targets.
#[cfg(feature = "fuzzing")]
pub fn decode_anything(datagram: &[u8]) {
    use netlink_packet_route::RouteNetlinkMessage as Route;

    for packet in packets::<Route>(datagram).flatten() {
        if let NetlinkPayload::InnerMessage(message) = packet.payload.clone() {
            decode_message(message);
        }
        let _ = Replies { messages: Vec::new(), interrupted: false }.take(packet);
    }
}

#[cfg(feature = "fuzzing")]
#[expect(clippy::wildcard_enum_match_arm, reason = "what nobody asks for")]
fn decode_message(message: netlink_packet_route::RouteNetlinkMessage) {
    use netlink_packet_route::RouteNetlinkMessage as Route;

    match message {
        Route::NewLink(link) | Route::DelLink(link) => drop(crate::link::decode(link)),
        Route::NewAddress(addr) | Route::DelAddress(addr) => drop(crate::addr::decode(addr)),
        Route::NewRoute(route) | Route::DelRoute(route) => drop(crate::route::decode(route)),
        Route::NewQueueDiscipline(qdisc) => drop(crate::Tbf::decode(&qdisc)),
        Route::NewRule(rule) | Route::DelRule(rule) => drop(crate::rule::decode(rule)),
        _ => {}
    }
}

const NETLINK_HEADER: usize = 16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The Go plugins give up after five interrupted dumps; a busy node deserves a few more.
const DUMP_ATTEMPTS: usize = 20;

#[cfg(test)]
mod tests {
    use netlink_packet_route::RouteNetlinkMessage;

    use super::*;

    /// What Linux 6.18 answers to `ip link set br1 master br0` on a socket with `NETLINK_CAP_ACK` (port number changed).
    const LOOP: &[u8] = b"\x50\0\0\0\x02\0\0\x03\x07\0\0\0\x01\0\0\0\
        \xd8\xff\xff\xff\
        \x28\0\0\0\x13\0\x05\0\x07\0\0\0\0\0\0\0\
        \x29\0\x01\0Can not enslave a bridge to a bridge\0\0\0\0";

    fn take(datagram: &[u8]) -> Result<bool, Error> {
        let packet = packets::<RouteNetlinkMessage>(datagram).next().unwrap()?;
        Replies { messages: Vec::new(), interrupted: false }.take(packet)
    }

    #[test]
    fn refusals_keep_errno_and_the_kernels_text() {
        let error = take(LOOP).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ELOOP));
        assert_eq!(error.kernel_text(), Some("Can not enslave a bridge to a bridge"));
    }

    #[test]
    fn acknowledgements_end_a_request() {
        let mut ack = LOOP.get(..36).unwrap().to_vec();
        ack[0] = 36;
        ack[16..20].fill(0);
        assert!(take(&ack).unwrap());
    }

    #[test]
    fn failed_dumps_are_errors() {
        let done = [0x14, 0, 0, 0, 3, 0, 2, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0xed, 0xff, 0xff, 0xff];
        assert_eq!(take(&done).unwrap_err().errno(), Some(libc::ENODEV));
    }

    #[test]
    fn a_dump_that_a_change_interrupted_is_noticed_to_its_end() {
        let done = |flags: u8| [0x14, 0, 0, 0, 3, 0, flags, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
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
    fn garbage_is_an_error_and_ends_the_datagram() {
        let mut packets = packets::<RouteNetlinkMessage>(&[1, 2, 3]);
        assert!(matches!(packets.next(), Some(Err(Error::Decode { .. }))));
        assert!(packets.next().is_none());
    }
}
