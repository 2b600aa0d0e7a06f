// SPDX-License-Identifier: Apache-2.0
//! The `dhcp` IPAM plugin: addresses from a DHCP server (reference: `plugins/ipam/dhcp`).
//!
//! The plugin itself is a short-lived client of `dhcp daemon`, which acquires leases inside the containers' namespaces
//! and renews them for as long as the containers live. Both are in here, and each also talks to the reference's
//! counterpart. Beyond the reference leases survive the daemon, DEL does without one, and there are STATUS and GC.
//!
//! Invariant: everything that waits, waits in the daemon on a thread of the attachment's own.

mod alone;
mod config;
mod daemon;
mod exchange;
mod gob;
mod lease;
mod message;
mod options;
mod packet;
mod rpc;
mod state;
mod waker;

use std::net::IpAddr;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{Attachment, CniResult, Code, NetnsPath};
use cnibox_sys::{Coded, Failure, Sys};
use thiserror::Error;

pub use config::Config;
pub use daemon::main as daemon_main;
use options::{OptionError, Options};
use rpc::{Call, CallError, Connection, DialError, Method};
use state::{StateError, Store};

/// The plugin.
pub struct Dhcp;

/// Why a verb failed.
#[derive(Debug, Error)]
enum DhcpError {
    #[error("error dialing DHCP daemon: {0}")]
    Dial(#[from] DialError),
    #[error("error calling {method}: {source}")]
    Call { method: &'static str, source: CallError },
    /// The daemon would say the same.
    #[error("error calling DHCP.Allocate: {0}")]
    Option(#[from] OptionError),
    #[error("error calling DHCP.Allocate: the daemon's answer makes no sense")]
    Nonsense,
    #[error("{0}")]
    State(#[from] StateError),
    #[error("dhcp: the lease of {ifname} is for {leased}, which prevResult does not have")]
    OtherAddress { ifname: String, leased: IpAddr },
}

impl Coded for DhcpError {
    fn code(&self) -> Code {
        match self {
            // Another attempt, a moment later, may well find a daemon and a server.
            Self::Dial(_) => Code::TRY_AGAIN_LATER,
            Self::Call { source: CallError::Refused(text), .. } if text == exchange::NO_MORE_TRIES => {
                Code::TRY_AGAIN_LATER
            }
            Self::Option(_) => Code::INVALID_CONFIG,
            Self::Call { .. } | Self::Nonsense | Self::State(_) | Self::OtherAddress { .. } => Code::INTERNAL,
        }
    }
}

impl Plugin for Dhcp {
    const NAME: &'static str = "dhcp";
    const ROLE: Role = Role::Ipam { asks_network: true };
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        Ok(allocate(request, sys)?)
    }

    /// Without a daemon the lease is given back from what the last one remembered of it.
    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let args = &request.args;
        let call = call(&args.attachment, args.netns.as_ref(), sys);
        let socket = &request.config.socket;
        match Connection::dial(socket) {
            Ok(daemon) => Ok(called(daemon, Method::Release, &call.to_value()).map(drop)?),
            Err(error) if error.is_absence() => {
                let name = state::name(&call.container, request.conf.network.as_str(), &call.ifname);
                Ok(alone::release_remembered(&Store::new("", socket), &name).map_err(DhcpError::from)?)
            }
            Err(error) => Err(DhcpError::from(error).into()),
        }
    }

    /// As in the reference a lease that the daemon does not know is acquired.
    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let leased = allocate(request, sys)?;
        let previous = request.conf.prev_result()?;
        let has = |address: IpAddr| {
            previous.as_ref().is_none_or(|previous| previous.ips.iter().any(|ip| ip.address.ip() == address))
        };
        match leased.ips.iter().map(|ip| ip.address.ip()).find(|address| !has(*address)) {
            None => Ok(()),
            Some(leased) => {
                Err(DhcpError::OtherAddress { ifname: request.args.attachment.ifname.to_string(), leased }
                    .into())
            }
        }
    }

    /// Without a daemon there are no addresses.
    fn status(request: &Request<'_, Config, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
        let failed = |error| Failure::new(Code::PLUGIN_NOT_AVAILABLE, DhcpError::Dial(error).to_string());
        Connection::dial(&request.config.socket).map(drop).map_err(failed)
    }

    fn gc(request: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        let argument = rpc::collection_to(request.conf.network.as_str(), &request.args.valid);
        let socket = &request.config.socket;
        match Connection::dial(socket) {
            Ok(daemon) => match called(daemon, Method::Collect, &argument) {
                // The reference's daemon, which has no GC.
                Err(DhcpError::Call { source: CallError::Refused(text), .. })
                    if text.starts_with("rpc: can't find") =>
                {
                    Ok(())
                }
                other => Ok(other.map(drop)?),
            },
            Err(error) if error.is_absence() => {
                let (network, lives) = rpc::collection_from(&argument);
                let collected = alone::collect_remembered(&Store::new("", socket), &network, lives);
                Ok(collected.map_err(DhcpError::from)?)
            }
            Err(error) => Err(DhcpError::from(error).into()),
        }
    }
}

fn allocate(request: &Request<'_, Config, AddArgs>, sys: &Sys<'_>) -> Result<CniResult, DhcpError> {
    Options::new(&request.config, &sys.env().var("CNI_ARGS"))?;
    let AddArgs { attachment, netns } = &request.args;
    let daemon = Connection::dial(&request.config.socket)?;
    let reply = called(daemon, Method::Allocate, &call(attachment, Some(netns), sys).to_value())?;
    rpc::allocation_from(&reply).ok_or(DhcpError::Nonsense)
}

fn called(mut daemon: Connection, method: Method, argument: &gob::Value) -> Result<gob::Value, DhcpError> {
    daemon.call(method, argument).map_err(|source| DhcpError::Call { method: method.name(), source })
}

/// The plugin's surroundings as the daemon wants them. It may run elsewhere, so the path is absolute.
fn call(attachment: &Attachment, netns: Option<&NetnsPath>, sys: &Sys<'_>) -> Call {
    let netns = netns.map_or("", NetnsPath::as_str);
    let absolute = std::path::absolute(netns)
        .map_or_else(|_| netns.to_owned(), |path| path.to_string_lossy().into_owned());
    Call {
        container: attachment.container.to_string(),
        netns: absolute,
        ifname: attachment.ifname.to_string(),
        args: sys.env().var("CNI_ARGS").into_owned(),
        path: sys.env().var("CNI_PATH").into_owned(),
        netns_override: sys.env().var("CNI_NETNS_OVERRIDE").into_owned(),
        stdin: sys.stdin().to_vec(),
    }
}

/// Reads every kind of input that others can send, for fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
