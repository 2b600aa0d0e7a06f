// SPDX-License-Identifier: Apache-2.0
//! One blocking NETLINK_NETFILTER socket. It belongs to the network namespace in which it was opened.

use std::io;
use std::ops::ControlFlow;
use std::time::Instant;

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::utils::find_attr;
use netlink_sys::Socket as RawSocket;
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::limbo;
use crate::error::{Error, Result};

/// Above what a netlink dump puts into one datagram today.
const RECEIVE_SIZE: usize = 64 * 1024;
pub(crate) const HEADER: usize = Nlmsghdr::len();
const DUMP_ATTEMPTS: u32 = 16;
/// `NLMSGERR_ATTR_MSG`
const ERROR_TEXT: u16 = 1;

/// A received message without its header.
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) body: &'a [u8],
}

/// An error that the kernel reported for one of our messages.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) seq: u32,
    pub(crate) errno: i32,
    pub(crate) text: Option<String>,
}

pub(crate) struct Socket {
    raw: RawSocket,
    next_seq: u32,
    buffer: Vec<u8>,
    /// When something was last deleted in the namespace, as far as is known.
    deleted: Option<Instant>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.deleted.is_some_and(|moment| moment.elapsed() < limbo::GRACE) {
            limbo::leave(&self.raw);
        }
    }
}

impl Socket {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self { raw: open()?, next_seq: 1, buffer: Vec::with_capacity(RECEIVE_SIZE), deleted: None })
    }

    /// To be called when this or another socket of the process deletes rules or chains: spares the process the wait for
    /// their memory to be freed when it closes the socket.
    pub(crate) fn note_deletion(&mut self) {
        self.deleted = Some(Instant::now());
    }

    /// Reserves `count` sequence numbers.
    pub(crate) fn sequence(&mut self, count: u32) -> u32 {
        let first = self.next_seq;
        self.next_seq = first.checked_add(count).unwrap_or(1);
        first
    }

    /// Sends one request and gives `answer` every message that belongs to it, up to the acknowledgement or end of dump, to
    /// be put into a state. An interrupted dump is asked for again, with a new state.
    pub(crate) fn ask<S: Default>(
        &mut self,
        request: &[u8],
        mut answer: impl FnMut(&mut S, Message<'_>),
    ) -> Result<std::result::Result<S, Refusal>> {
        self.ask_until(request, |state, message| {
            answer(state, message);
            ControlFlow::Continue(())
        })
    }

    /// As [`Socket::ask`], but done as soon as `answer` breaks. The socket is of no use afterwards if it did: the rest of
    /// the answer is still to come.
    pub(crate) fn ask_until<S: Default>(
        &mut self,
        request: &[u8],
        mut answer: impl FnMut(&mut S, Message<'_>) -> ControlFlow<()>,
    ) -> Result<std::result::Result<S, Refusal>> {
        let seq = messages(request).next().map_or(0, |message| message.seq);
        for _ in 0..DUMP_ATTEMPTS {
            let mut state = S::default();
            self.send(request)?;
            match self.collect(seq, |message| answer(&mut state, message))? {
                End::Complete => return Ok(Ok(state)),
                End::Refused(refusal) => return Ok(Err(refusal)),
                End::Interrupted => {}
                // What was cut off may have been the end; the rest of the answer is not waited for.
                End::Truncated => self.raw = open()?,
            }
        }
        Err(Error::Contended { attempts: DUMP_ATTEMPTS })
    }

    /// Sends a batch and returns what the kernel refused; `None` when that cannot be read. `echo` gets what the batch
    /// asked to be sent back. Netlink handles a request while it is being sent, so whatever there is to say has been said
    /// when `send` returns.
    pub(crate) fn transact(
        &mut self,
        batch: &[u8],
        mut echo: impl FnMut(Message<'_>),
    ) -> Result<Option<Vec<Refusal>>> {
        self.grow_send_buffer(batch.len())?;
        self.send(batch)?;
        let (mut refusals, mut lost) = (Vec::new(), false);
        loop {
            match self.receive(libc::MSG_DONTWAIT) {
                Ok(Received::Whole) => {}
                Ok(Received::Nothing) => return Ok((!lost).then_some(refusals)),
                Ok(Received::Truncated) => lost = true,
                // More was said than the socket holds. What it holds would be in the way of the next answer.
                Err(error) if error.errno() == Some(libc::ENOBUFS) && !lost => lost = true,
                Err(_) => return Ok(None),
            }
            for message in messages(&self.buffer) {
                match refusal(&message) {
                    Some(refusal) => refusals.extend((refusal.errno != 0).then_some(refusal)),
                    None => echo(message),
                }
            }
        }
    }

    /// A batch must fit the socket's buffer as a whole; the default holds some hundred rules.
    fn grow_send_buffer(&self, len: usize) -> Result<()> {
        use nix::sys::socket::{setsockopt, sockopt};
        if len < 64 * 1024 {
            return Ok(());
        }
        setsockopt(&self.raw, sockopt::SndBufForce, &(2 * len))
            .or_else(|_| setsockopt(&self.raw, sockopt::SndBuf, &(2 * len)))
            .map_err(|errno| Error::Socket { operation: "enlarge netlink send buffer", source: errno.into() })
    }

    fn send(&self, request: &[u8]) -> Result<()> {
        let kernel = netlink_sys::SocketAddr::new(0, 0);
        let sent = retry(|| self.raw.send_to(request, &kernel, 0));
        sent.map(drop).map_err(|source| Error::Socket { operation: "send netlink request", source })
    }

    /// Fills the buffer with the next datagram of the kernel. There is nothing only where `flags` say not to wait. After one
    /// that was too large the buffer is large enough for it to come again.
    fn receive(&mut self, flags: libc::c_int) -> Result<Received> {
        loop {
            self.buffer.clear();
            let received = retry(|| self.raw.recv_from(&mut self.buffer, flags | libc::MSG_TRUNC));
            match received {
                // not from the kernel
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((len, _)) if len > self.buffer.len() => {
                    self.buffer.reserve(len);
                    return Ok(Received::Truncated);
                }
                Ok(_) => return Ok(Received::Whole),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(source) => return Err(Error::Socket { operation: "receive netlink answer", source }),
            }
        }
    }

    fn collect(&mut self, seq: u32, mut answer: impl FnMut(Message<'_>) -> ControlFlow<()>) -> Result<End> {
        let mut interrupted = false;
        loop {
            if self.receive(0)? == Received::Truncated {
                return Ok(End::Truncated);
            }
            for message in messages(&self.buffer).filter(|message| message.seq == seq) {
                interrupted |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => return Ok(End::of(&message, interrupted)),
                    libc::NLMSG_NOOP => {}
                    _ if answer(message).is_break() => return Ok(End::Complete),
                    _ => {}
                }
            }
        }
    }
}

fn open() -> Result<RawSocket> {
    let operation = "open netfilter netlink socket";
    let failed = |source: io::Error| match source.raw_os_error() {
        // Not even the family of sockets that nf_tables speaks.
        Some(libc::EPROTONOSUPPORT) => Error::NoNfTables { operation },
        _ => Error::Socket { operation, source },
    };
    let raw = RawSocket::new(NETLINK_NETFILTER).map_err(failed)?;
    raw.set_ext_ack(true).map_err(failed)?;
    raw.set_cap_ack(true).map_err(failed)?;
    Ok(raw)
}

#[derive(PartialEq, Eq)]
enum Received {
    Whole,
    Truncated,
    Nothing,
}

enum End {
    Complete,
    Interrupted,
    Truncated,
    Refused(Refusal),
}

impl End {
    fn of(message: &Message<'_>, interrupted: bool) -> Self {
        match refusal(message) {
            Some(refusal) if refusal.errno != 0 => Self::Refused(refusal),
            _ if interrupted => Self::Interrupted,
            _ => Self::Complete,
        }
    }
}

/// The error code of an NLMSG_ERROR or NLMSG_DONE message, 0 for success, and the kernel's text.
fn refusal(message: &Message<'_>) -> Option<Refusal> {
    let kind = i32::from(message.kind);
    if kind != libc::NLMSG_ERROR && kind != libc::NLMSG_DONE {
        return None;
    }
    let code = message.body.first_chunk().copied().map_or(0, i32::from_ne_bytes);
    let has_text = i32::from(message.flags) & libc::NLM_F_ACK_TLVS != 0;
    // the header of the refused request stands between code and attributes, its payload was capped
    let text_at = if kind == libc::NLMSG_ERROR { 4 + HEADER } else { 4 };
    let attrs = message.body.get(text_at..).filter(|_| has_text).unwrap_or_default();
    let text = find_attr(attrs, ERROR_TEXT)
        .map(|text| String::from_utf8_lossy(super::expr::cut_nul(text)).into_owned());
    Some(Refusal { seq: message.seq, errno: -code, text })
}

impl Refusal {
    pub(crate) fn into_error(self, operation: String) -> Error {
        Error::Kernel { operation, errno: self.errno, text: self.text }
    }
}

/// Splits a datagram into messages.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = Nlmsghdr::new_from_array(*datagram.first_chunk()?);
        let len = usize::try_from(header.len).ok()?;
        let body = datagram.get(HEADER..len)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind: header.r#type, flags: header.flags, seq: header.seq, body })
    })
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
