// SPDX-License-Identifier: Apache-2.0
//! The firewalld backend: sources of a zone, asked for over the system bus (reference: `firewalld.go`).
//!
//! A source is an address that belongs to a zone, until firewalld ends: nothing here is written to its permanent
//! configuration. Every conversation is a connection of its own, driven by the calling thread and bounded in time; one
//! that fails to connect because there is no bus costs no more than the attempt. The bus is the one that the call's
//! environment names, never the process's.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cnibox_netns::errno::io_text;
use cnibox_spec::Code;
use cnibox_sys::{Coded, Env, Failure};
use ipnetwork::IpNetwork;
use thiserror::Error;
use zbus::address::transport::{Transport, UnixSocket};
use zbus::connection::Builder;
use zbus::{Address, Connection, DBusError};

/// What can go wrong on the way to firewalld. Texts are the reference's.
#[derive(Debug, Error)]
pub(crate) enum FirewalldError {
    /// There is no bus at the address.
    #[error("dial {address}: connect: {}", io_text(reason))]
    Dial { address: String, reason: Arc<io::Error> },
    /// The bus is there and does not do its part.
    #[error("{}", answer(.0))]
    Bus(zbus::Error),
    /// The bus is there and says nothing.
    #[error("no answer from the system bus within {} s", .0.as_secs())]
    Silent(Duration),
}

impl FirewalldError {
    /// Nothing listens on the bus. What firewalld kept for this boot is gone with it.
    fn is_no_bus(&self) -> bool {
        let gone = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, Self::Dial { reason, .. } if gone.contains(&reason.kind()))
    }
}

impl Coded for FirewalldError {
    fn code(&self) -> Code {
        match self {
            Self::Silent(_) => Code::TRY_AGAIN_LATER,
            Self::Dial { .. } | Self::Bus(_) => Code::INTERNAL,
        }
    }
}

impl From<zbus::Error> for FirewalldError {
    fn from(error: zbus::Error) -> Self {
        if let zbus::Error::Connection(reason, address) = error {
            return Self::Dial { address: dialled(&address), reason };
        }
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        if matches!(&error, zbus::Error::InputOutput(reason) if is_late(reason)) {
            return Self::Silent(CALL_LIMIT);
        }
        Self::Bus(error)
    }
}

/// Somebody on the system bus is firewalld.
///
/// # Errors
/// Nobody is; with the reason.
pub(crate) fn require_running(env: &Env) -> Result<(), Failure> {
    let bus = addresses(env);
    let asked = zbus::block_on(async {
        within(CONNECT_LIMIT, async {
            let bus = connect(&bus).await?;
            let daemon = "org.freedesktop.DBus";
            bus.call_method(Some(daemon), "/org/freedesktop/DBus", Some(daemon), "GetNameOwner", &(NAME,))
                .await?;
            Ok(())
        })
        .await
    });
    let refused = |error| format!("firewalld is not running: {error}");
    asked.map_err(|error| Failure::new(Code::PLUGIN_NOT_AVAILABLE, refused(error)))
}

/// The sources of one zone.
#[derive(Clone, Debug)]
pub(crate) struct Zone {
    bus: String,
    name: String,
}

impl Zone {
    /// The zone of this name, on the bus of this environment.
    pub(crate) fn new(name: &str, env: &Env) -> Self {
        Self { bus: addresses(env), name: name.to_owned() }
    }

    /// `firewall-cmd --zone=ZONE --add-source=ADDRESS`. Returns the addresses that were not there before.
    ///
    /// # Errors
    /// The first failure; what this call has added until then is removed again.
    pub(crate) fn add_sources(&self, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Failure> {
        self.converse(async |bus| {
            let mut added = Vec::new();
            for ip in addresses {
                match self.call(bus, "addSource", *ip).await {
                    Ok(_) => added.push(*ip),
                    Err(error) if error.to_string().contains("ZONE_ALREADY_SET") => {}
                    Err(error) => {
                        self.remove(bus, &added).await;
                        let (source, zone) = (source(*ip), &self.name);
                        let text = format!("failed to add the address {source} to {zone} zone: {error}");
                        return Err(Failure::new(error.code(), text));
                    }
                }
            }
            Ok(added)
        })
    }

    /// `firewall-cmd --zone=ZONE --remove-source=ADDRESS`, whatever firewalld says to it. Where there is no bus, no
    /// source is left.
    ///
    /// # Errors
    /// The bus is there and cannot be talked to.
    pub(crate) fn remove_sources_if_present(&self, addresses: &[IpAddr]) -> Result<(), FirewalldError> {
        let removed = self.converse(async |bus| {
            self.remove(bus, addresses).await;
            Ok(())
        });
        removed.or_else(|error: FirewalldError| if error.is_no_bus() { Ok(()) } else { Err(error) })
    }

    /// `firewall-cmd --zone=ZONE --query-source=ADDRESS` for each.
    ///
    /// # Errors
    /// The first that is not there, or of which the zone does not say.
    pub(crate) fn require_sources(&self, addresses: &[IpAddr]) -> Result<(), Failure> {
        self.converse(async |bus| {
            for ip in addresses {
                let answer = self.call(bus, "querySource", *ip).await;
                if !answer.is_ok_and(|message| message.body().deserialize().unwrap_or(false)) {
                    let (source, zone) = (source(*ip), &self.name);
                    let text = format!("failed to find the address {source} in {zone} zone");
                    return Err(Failure::internal(text));
                }
            }
            Ok(())
        })
    }

    async fn remove(&self, bus: &Connection, addresses: &[IpAddr]) {
        for ip in addresses {
            // One that is silent now will not speak for the next address either.
            if let Err(FirewalldError::Silent(_)) = self.call(bus, "removeSource", *ip).await {
                return;
            }
        }
    }

    async fn call(
        &self,
        bus: &Connection,
        method: &str,
        ip: IpAddr,
    ) -> Result<zbus::Message, FirewalldError> {
        let body = (self.name.as_str(), source(ip));
        let called = bus.call_method(Some(NAME), PATH, Some(ZONE_INTERFACE), method, &body);
        Ok(called.await?)
    }

    /// Runs a conversation on this thread. Its connection must not outlive it, or a thread would be started for that.
    fn converse<T, E: From<FirewalldError>>(
        &self,
        talk: impl AsyncFnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        zbus::block_on(async {
            let bus = within(CONNECT_LIMIT, connect(&self.bus)).await?;
            talk(&bus).await
        })
    }
}

/// Bounds what may wait for a bus that accepts connections and then says nothing.
async fn within<T>(
    limit: Duration,
    talk: impl Future<Output = Result<T, FirewalldError>>,
) -> Result<T, FirewalldError> {
    let runtime = zruntime::SharedRuntime::current().map_err(|error| FirewalldError::Bus(error.into()))?;
    runtime.timeout(limit, talk).await.unwrap_or(Err(FirewalldError::Silent(limit)))
}

/// A connection to the first of the addresses that takes one.
async fn connect(addresses: &str) -> Result<Connection, FirewalldError> {
    let mut outcome = Err(zbus::Error::Address(addresses.to_owned()));
    for address in addresses.split(';') {
        outcome = Builder::address(address).method_timeout(CALL_LIMIT).build().await;
        if outcome.is_ok() {
            break;
        }
    }
    Ok(outcome?)
}

fn addresses(env: &Env) -> String {
    match &*env.var("DBUS_SYSTEM_BUS_ADDRESS") {
        "" => "unix:path=/var/run/dbus/system_bus_socket".to_owned(),
        named => named.to_owned(),
    }
}

fn source(ip: IpAddr) -> String {
    IpNetwork::from(ip).to_string()
}

/// The address as Go's `net` prints what it dials.
fn dialled(address: &Address) -> String {
    let Transport::Unix(unix) = address.transport() else { return address.to_string() };
    if let UnixSocket::Abstract(name) = unix.path() {
        return format!("unix @{}", name.display());
    }
    let text = unix.path().to_string();
    format!("unix {}", text.strip_prefix("path=").unwrap_or(&text))
}

/// The text of an error reply without its name, where it has one.
fn answer(error: &zbus::Error) -> String {
    let (name, text) = if let zbus::Error::MethodError(name, text, _) = error {
        (name.to_string(), text.as_deref())
    } else if let zbus::Error::FDO(error) = error {
        (error.name().to_string(), error.description())
    } else {
        return error.to_string();
    };
    text.filter(|text| !text.is_empty()).map_or(name, str::to_owned)
}

const NAME: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONE_INTERFACE: &str = "org.fedoraproject.FirewallD1.zone";
/// Until a bus has taken us in; a local matter.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// One call; what D-Bus libraries usually wait. firewalld may be reloading.
const CALL_LIMIT: Duration = Duration::from_secs(25);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_host_addresses() {
        assert_eq!(source("10.22.0.2".parse().unwrap()), "10.22.0.2/32");
        assert_eq!(source("fd22::2".parse().unwrap()), "fd22::2/128");
    }

    #[test]
    fn the_bus_is_the_one_of_the_environment() {
        let env = Env::default();
        assert_eq!(addresses(&env), "unix:path=/var/run/dbus/system_bus_socket");
        let name = "DBUS_SYSTEM_BUS_ADDRESS";
        assert_eq!(addresses(&env.clone().with(name, "")), addresses(&env));
        assert_eq!(addresses(&env.with(name, "unix:path=/x")), "unix:path=/x");
    }

    #[test]
    fn a_bus_that_is_not_there_has_the_references_text() {
        let dial = |bus: &str| {
            let zone = Zone { bus: bus.to_owned(), name: "trusted".to_owned() };
            zone.converse(async |_| Ok::<_, FirewalldError>(())).unwrap_err()
        };
        let cases = [
            ("unix:path=/nowhere/bus", "dial unix /nowhere/bus: connect: no such file or directory"),
            (
                "unix:path=/nowhere/a;unix:path=/nowhere/b",
                "dial unix /nowhere/b: connect: no such file or directory",
            ),
            ("unix:abstract=cnibox-nobody", "dial unix @cnibox-nobody: connect: connection refused"),
        ];
        for (bus, text) in cases {
            let error = dial(bus);
            assert_eq!(error.to_string(), text);
            assert!(error.is_no_bus());
        }
        assert!(!dial("nonsense").is_no_bus());
    }
}
