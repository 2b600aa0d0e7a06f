// SPDX-License-Identifier: Apache-2.0
//! Conversations with servers: ask, wait, ask again, and give up after a while.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use cnibox_netns::errno::io_text;
use dhcproto::error::EncodeError;
use dhcproto::v4::MessageType;
use thiserror::Error;

use crate::lease::Lease;
use crate::message::{Answer, Ask, Client, Outgoing};
use crate::packet::{Channel, Direct, EVERYBODY, Port};
use crate::waker::{Waker, Woken};

/// Why there is no lease. The texts are those of the library that the reference uses.
#[derive(Debug, Error)]
pub(crate) enum ExchangeError {
    /// Nobody answered in time.
    #[error("no matching response packet received")]
    Silence,
    /// A server said no.
    #[error("server rejected request with Nak{}", said(.0))]
    Refused(String),
    /// The interface cannot be talked on.
    #[error("{doing}: {}", io_text(source))]
    Io { doing: &'static str, source: io::Error },
    /// An option has no form.
    #[error("unable to create a request: {0}")]
    Encode(#[from] EncodeError),
    /// Nobody wants the lease any more.
    #[error("context canceled")]
    Stopped,
    /// There is no time for another attempt.
    #[error("context deadline exceeded")]
    Late,
    /// The time for attempts is over.
    #[error("{NO_MORE_TRIES}")]
    NoMoreTries,
    /// The container or its interface is not there, or the lease is of no use there.
    #[error("{0}")]
    Gone(String),
}

impl ExchangeError {
    /// Whether another attempt would end the same.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Stopped | Self::Gone(_))
    }
}

/// What the reference says when its patience is over.
pub(crate) const NO_MORE_TRIES: &str = "no more tries";

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" (msg: {text})") }
}

/// A client on its interface, and its patience.
pub(crate) struct Conversation<'a> {
    pub(crate) client: &'a Client,
    pub(crate) ifname: &'a str,
    /// For the first answer; every repetition waits twice as long.
    pub(crate) timeout: Duration,
    /// When it all has to be over.
    pub(crate) deadline: Instant,
    /// Who else may end it.
    pub(crate) waker: &'a Waker,
}

impl Conversation<'_> {
    /// A new lease: offer and acknowledgement. `wish` is an address to ask for.
    pub(crate) fn acquire(&self, wish: Option<Ipv4Addr>) -> Result<Lease, ExchangeError> {
        let port = open(self.ifname)?;
        let discover = self.client.ask(port.mac, Ask::Discover(wish))?;
        let offer = self.transact(&port, port.mac, &discover, |answer| answer.kind == MessageType::Offer)?;
        let select = self.client.ask(port.mac, Ask::Select(&offer))?;
        self.granted(&port, port.mac, &select, offer.lease.server)
    }

    /// The lease for longer, of its server: directly from the container's address, or by a broadcast where that is
    /// not there.
    pub(crate) fn renew(&self, lease: &Lease) -> Result<Lease, ExchangeError> {
        let port = open(self.ifname)?;
        let request = self.client.ask(port.mac, Ask::Extend(lease.address))?;
        let direct = lease.server.and_then(|server| Direct::open(self.ifname, lease.address, server).ok());
        let renewed = match direct {
            Some(direct) => self.granted(&direct, port.mac, &request, lease.server),
            None => self.granted(&port, port.mac, &request, lease.server),
        };
        Ok(renewed?.after(lease))
    }

    /// The lease once more, of any server: for longer, or only confirmed after a restart of ours.
    pub(crate) fn ask_any(&self, ask: Ask<'_>, lease: &Lease) -> Result<Lease, ExchangeError> {
        let port = open(self.ifname)?;
        let request = self.client.ask(port.mac, ask)?;
        Ok(self.granted(&port, port.mac, &request, None)?.after(lease))
    }

    /// Asks and takes a yes or a no, of `server` only if one is given.
    fn granted(
        &self,
        channel: &impl Channel,
        mac: [u8; 6],
        request: &Outgoing,
        server: Option<Ipv4Addr>,
    ) -> Result<Lease, ExchangeError> {
        let decides = |answer: &Answer| {
            let decision = matches!(answer.kind, MessageType::Ack | MessageType::Nak);
            decision && (server.is_none() || answer.lease.server == server)
        };
        let answer = self.transact(channel, mac, request, decides)?;
        if answer.kind == MessageType::Nak {
            return Err(ExchangeError::Refused(answer.text));
        }
        Ok(answer.lease)
    }

    fn transact(
        &self,
        channel: &impl Channel,
        mac: [u8; 6],
        request: &Outgoing,
        accept: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, ExchangeError> {
        let Self { timeout, deadline, .. } = *self;
        for doubled in 0..ATTEMPTS {
            channel.send(&request.bytes).map_err(|source| ExchangeError::Io {
                doing: "error writing packet to connection",
                source,
            })?;
            let until = Instant::now().checked_add(timeout.saturating_mul(1 << doubled)).unwrap_or(deadline);
            if let Some(answer) = self.await_answer(channel, until.min(deadline), |bytes, hop| {
                Answer::read(bytes, request.xid, mac, hop).filter(&accept)
            })? {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                return Err(ExchangeError::Late);
            }
        }
        Err(ExchangeError::Silence)
    }

    /// The first message by `until` that `read` makes something of.
    fn await_answer(
        &self,
        channel: &impl Channel,
        until: Instant,
        read: impl Fn(&[u8], Option<[u8; 6]>) -> Option<Answer>,
    ) -> Result<Option<Answer>, ExchangeError> {
        let broken = |source| ExchangeError::Io { doing: "error reading from connection", source };
        loop {
            let received = channel.receive().map_err(broken)?;
            if let Some(answer) = received.and_then(|(bytes, hop)| read(&bytes, hop)) {
                return Ok(Some(answer));
            }
            // Others may send without a pause, so that there is always something to read.
            if Instant::now() >= until {
                return Ok(None);
            }
            match self.waker.wait(until, Some(channel.fd())) {
                Woken::Time => return Ok(None),
                Woken::Stopped => return Err(ExchangeError::Stopped),
                // Attention can wait until this is over.
                Woken::Readable | Woken::Poked => {}
            }
        }
    }
}

/// Tells the server that the lease is over. Nobody answers to that.
///
/// The message is for the server alone and from the address of the lease, else a server drops it (the reference's is
/// from no address). It does not go through the container's own stack: that may have lost the address, and what waits
/// there for the server to be resolved is lost when the interface goes, which is what happens next. So it is sent to
/// the machine that the lease came from and, as that may have another hardware address by now, once more to all. A
/// server that gets both does not know the lease any more when the second one comes.
pub(crate) fn release(client: &Client, ifname: &str, lease: &Lease) -> Result<(), ExchangeError> {
    let Some(server) = lease.server else { return Ok(()) };
    let port = open(ifname)?;
    let message = client.release(port.mac, lease.address, server)?;
    for to in lease.hop.into_iter().chain([EVERYBODY]) {
        port.send_to(to, lease.address, server, &message.bytes)
            .map_err(|source| ExchangeError::Io { doing: "failed to send DHCPRELEASE", source })?;
    }
    Ok(())
}

fn open(ifname: &str) -> Result<Port, ExchangeError> {
    Port::open(ifname)
        .map_err(|source| ExchangeError::Io { doing: "unable to open a broadcasting socket", source })
}

/// How often the same message is sent.
const ATTEMPTS: u32 = 3;

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::mpsc;

    use nix::sys::eventfd::EventFd;

    use super::*;
    use crate::options::Options;
    use crate::packet::Received;

    /// Can always be read, and never has an answer.
    struct Flooded {
        fd: EventFd,
        received: Option<Received>,
    }

    impl Channel for Flooded {
        fn send(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn receive(&self) -> io::Result<Option<Received>> {
            Ok(self.received.clone())
        }

        fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
    }

    #[test]
    fn nobody_holds_a_conversation_up_by_sending_without_a_pause() {
        for received in [None, Some((vec![0; 300], None))] {
            let channel = Flooded { fd: EventFd::from_value(1).unwrap(), received };
            let client = Client::new("c/n/eth0", Options::default(), false);
            let waker = Waker::new().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            let timeout = Duration::from_millis(10);
            let talk = Conversation { client: &client, ifname: "eth0", timeout, deadline, waker: &waker };
            let request = client.ask([2; 6], Ask::Discover(None)).unwrap();
            let (over, is_over) = mpsc::channel();
            let error = std::thread::scope(|scope| {
                let waker = &waker;
                scope.spawn(move || is_over.recv_timeout(Duration::from_secs(10)).map_err(|_| waker.stop()));
                let error = talk.transact(&channel, [2; 6], &request, |_| true).unwrap_err();
                over.send(()).unwrap();
                error
            });
            assert!(matches!(error, ExchangeError::Silence), "{error}");
        }
    }
}
