// SPDX-License-Identifier: Apache-2.0
//! The conversation between plugin and daemon: Go's `net/rpc` over a stream that begins as HTTP. A Go plugin can
//! talk to our daemon and the other way round.
//!
//! Methods: `DHCP.Allocate` and `DHCP.Release` are the reference's. `Cnibox.Collect` is ours, for GC; the reference's
//! daemon answers that it has no such service.

mod types;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use cnibox_netns::errno::{self, io_text};
use cnibox_spec::Code;
use cnibox_sys::Coded;
use thiserror::Error;

use crate::gob::{Decoder, Encoder, GobError, Value};

pub(crate) use types::{allocation_from, allocation_to, collection_from, collection_to};

/// What may be asked of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// A lease for an attachment, acquired or there already.
    Allocate,
    /// The end of an attachment's lease.
    Release,
    /// The end of all leases of a network but those of the attachments that live.
    Collect,
}

impl Method {
    const ALL: [Self; 3] = [Self::Allocate, Self::Release, Self::Collect];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Allocate => "DHCP.Allocate",
            Self::Release => "DHCP.Release",
            Self::Collect => "Cnibox.Collect",
        }
    }
}

/// Why there is no connection to a daemon. The texts are Go's.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    /// Nobody listens at the path.
    #[error("error dialing DHCP daemon: dial unix {path}: connect: {}", address_text(source))]
    Connect { path: String, source: io::Error },
    /// Somebody does who is no such daemon.
    #[error("error dialing DHCP daemon: dial-http unix {path}: {reason}")]
    Greeting { path: String, reason: String },
}

// Another attempt, a moment later, may well find a daemon.
impl Coded for DialError {
    const CODE: Code = Code::TRY_AGAIN_LATER;
}

impl DialError {
    /// Whether there is no daemon: no socket, or one that is left over.
    pub(crate) fn is_absence(&self) -> bool {
        let absent = |source: &io::Error| {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        };
        matches!(self, Self::Connect { source, .. } if absent(source))
    }
}

/// A path that does not fit into an address is refused by the standard library, in Go by the kernel.
pub(crate) fn address_text(error: &io::Error) -> String {
    let too_long = error.kind() == io::ErrorKind::InvalidInput;
    if too_long { errno::text(libc::EINVAL).into_owned() } else { io_text(error).into_owned() }
}

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// The daemon's answer.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] GobError),
    /// The daemon went away without an answer.
    #[error("unexpected EOF")]
    Closed,
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// A connection to the daemon.
pub(crate) struct Connection {
    reader: BufReader<UnixStream>,
    encoder: Encoder,
    decoder: Decoder,
}

impl Connection {
    /// Connects to the daemon that listens at `path`.
    pub(crate) fn dial(path: &str) -> Result<Self, DialError> {
        let connect = |source| DialError::Connect { path: path.to_owned(), source };
        let mut reader = BufReader::new(UnixStream::connect(path).map_err(connect)?);
        let failed = |reason: String| DialError::Greeting { path: path.to_owned(), reason };
        let greeted = reader.get_mut().write_all(b"CONNECT /_goRPC_ HTTP/1.0\n\n");
        let head =
            greeted.and_then(|()| read_head(&mut reader)).map_err(|error| failed(io_text(&error).into()))?;
        let status = head.lines().next().and_then(|line| line.split_once(' ')).map(|(_, status)| status);
        match status {
            Some(CONNECTED) => {
                Ok(Self { reader, encoder: Encoder::default(), decoder: Decoder::new(MESSAGE_LIMIT) })
            }
            Some(status) => Err(failed(format!("unexpected HTTP response: {status}"))),
            None => Err(failed("unexpected EOF".to_owned())),
        }
    }

    /// Calls a method and waits for its answer for as long as it takes.
    pub(crate) fn call(&mut self, method: Method, argument: &Value) -> Result<Value, CallError> {
        let header = Value::of([("ServiceMethod", Value::text(method.name()))]);
        let mut message = self.encoder.encode(&header);
        message.extend(self.encoder.encode(argument));
        self.reader.get_mut().write_all(&message)?;
        let header = self.decoder.next(&mut self.reader)?.ok_or(CallError::Closed)?;
        let body = self.decoder.next(&mut self.reader)?.ok_or(CallError::Closed)?;
        match header.text_field("Error") {
            "" => Ok(body),
            error => Err(CallError::Refused(error.to_owned())),
        }
    }
}

/// Serves one connection until its end. `answer` is asked for every call that names a method.
///
/// # Errors
/// The connection broke, or the peer speaks something else.
pub(crate) fn serve(
    stream: impl Read,
    mut out: impl Write,
    mut answer: impl FnMut(Method, &Value) -> Result<Value, String>,
) -> Result<(), CallError> {
    let mut reader = BufReader::new(stream);
    if !greet(&read_head(&mut reader)?, &mut out)? {
        return Ok(());
    }
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(MESSAGE_LIMIT));
    while let Some(header) = decoder.next(&mut reader)? {
        let argument = decoder.next(&mut reader)?.ok_or(CallError::Closed)?;
        let name = header.text_field("ServiceMethod");
        let method = Method::ALL.into_iter().find(|method| method.name() == name);
        let answered = method.ok_or_else(|| unknown(name)).and_then(|method| answer(method, &argument));
        let (error, reply) = match answered {
            Ok(reply) => (String::new(), reply),
            Err(error) => (error, Value::of([])),
        };
        // Nothing else of the peer's is sent back to it.
        let sequence = if let Some(Value::Uint(number)) = header.field("Seq") { *number } else { 0 };
        let header = Value::of([
            ("ServiceMethod", Value::text(name)),
            ("Seq", Value::Uint(sequence)),
            ("Error", Value::Text(error)),
        ]);
        let mut message = encoder.encode(&header);
        message.extend(encoder.encode(&reply));
        out.write_all(&message)?;
    }
    Ok(())
}

/// Whether the head of a request is the one that begins a conversation; else it is answered as Go does.
fn greet(head: &str, out: &mut impl Write) -> io::Result<bool> {
    let mut words = head.split_ascii_whitespace();
    let (method, path) = (words.next(), words.next());
    let refused =
        |status: &str, text: &str| format!("HTTP/1.0 {status}\r\nContent-Type: text/plain\r\n\r\n{text}\n");
    let answer = match (method, path) {
        (Some("CONNECT"), Some("/_goRPC_")) => format!("HTTP/1.0 {CONNECTED}\n\n"),
        (Some(_), Some("/_goRPC_")) => refused("405 Method Not Allowed", "405 must CONNECT"),
        _ => refused("404 Not Found", "404 page not found"),
    };
    out.write_all(answer.as_bytes())?;
    Ok(answer.contains(CONNECTED))
}

/// Go's words for a method that is not there.
fn unknown(name: &str) -> String {
    let known =
        |service: &str| Method::ALL.iter().any(|method| method.name().starts_with(&format!("{service}.")));
    match name.rsplit_once('.') {
        None => format!("rpc: service/method request ill-formed: {name}"),
        Some((service, _)) if known(service) => format!("rpc: can't find method {name}"),
        Some(_) => format!("rpc: can't find service {name}"),
    }
}

/// The lines up to an empty one.
fn read_head(reader: &mut impl BufRead) -> io::Result<String> {
    let mut head = String::new();
    let mut limited = reader.take(HEAD_LIMIT);
    loop {
        let start = head.len();
        let length = limited.read_line(&mut head)?;
        if length == 0 || head.get(start..).is_some_and(|line| line.trim_end().is_empty()) {
            return Ok(head);
        }
    }
}

const CONNECTED: &str = "200 Connected to Go RPC";
/// The most that is read in front of the conversation.
const HEAD_LIMIT: u64 = 4096;
/// Above the largest configuration that a plugin reads from stdin.
const MESSAGE_LIMIT: u64 = 17 << 20;

#[cfg(test)]
mod tests;
