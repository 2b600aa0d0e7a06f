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
use cnibox_sys::{Failure, Sys};

pub use config::Config;
pub use daemon::main as daemon_main;
use gob::Value;
use options::Options;
use rpc::{CallError, Connection, DialError, Method};
use state::Store;

/// The plugin.
pub struct Dhcp;

impl Plugin for Dhcp {
    const NAME: &'static str = "dhcp";
    const ROLE: Role = Role::Ipam { asks_network: true };
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        allocate(request, sys)
    }

    /// Without a daemon the lease is given back from what the last one remembered of it.
    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let DelArgs { attachment, netns } = &request.args;
        let socket = &request.config.socket;
        match Connection::dial(socket) {
            Ok(daemon) => called(daemon, Method::Release, &call(attachment, netns.as_ref(), sys)).map(drop),
            Err(error) if error.is_absence() => {
                let network = request.conf.network.as_str();
                let name = state::name(attachment.container.as_str(), network, attachment.ifname.as_str());
                alone::release_remembered(&Store::new("", socket), &name)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As in the reference a lease that the daemon does not know is acquired.
    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let leased = allocate(request, sys)?;
        let previous = request.conf.prev_result()?;
        let has = |address: IpAddr| {
            previous.as_ref().is_none_or(|previous| previous.ips.iter().any(|ip| ip.address.ip() == address))
        };
        let mut leased = leased.ips.iter().map(|ip| ip.address.ip());
        let Some(leased) = leased.find(|address| !has(*address)) else { return Ok(()) };
        let ifname = &request.args.attachment.ifname;
        let msg = format!("dhcp: the lease of {ifname} is for {leased}, which prevResult does not have");
        Err(Failure::internal(msg))
    }

    /// Without a daemon there are no addresses.
    fn status(request: &Request<'_, Config, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
        let failed = |error: DialError| Failure::new(Code::PLUGIN_NOT_AVAILABLE, error.to_string());
        Connection::dial(&request.config.socket).map(drop).map_err(failed)
    }

    fn gc(request: &Request<'_, Config, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        let (network, live) = (request.conf.network.as_str(), &request.args.valid);
        let socket = &request.config.socket;
        match Connection::dial(socket) {
            Ok(mut daemon) => match daemon.call(Method::Collect, &rpc::collection_to(network, live)) {
                // The reference's daemon, which has no GC.
                Err(CallError::Refused(text)) if text.starts_with("rpc: can't find") => Ok(()),
                other => other.map(drop).map_err(|error| failed(Method::Collect, &error)),
            },
            Err(error) if error.is_absence() => {
                alone::collect_remembered(&Store::new("", socket), network, live)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn allocate(request: &Request<'_, Config, AddArgs>, sys: &Sys<'_>) -> Result<CniResult, Failure> {
    let method = Method::Allocate;
    // The daemon would say the same.
    Options::new(&request.config, &sys.env().var("CNI_ARGS"))
        .map_err(|error| Failure::invalid_config(format!("error calling {}: {error}", method.name())))?;
    let AddArgs { attachment, netns } = &request.args;
    let daemon = Connection::dial(&request.config.socket)?;
    let reply = called(daemon, method, &call(attachment, Some(netns), sys))?;
    let nonsense = || format!("error calling {}: the daemon's answer makes no sense", method.name());
    rpc::allocation_from(&reply).ok_or_else(|| Failure::new(Code::INTERNAL, nonsense()))
}

fn called(mut daemon: Connection, method: Method, argument: &Value) -> Result<Value, Failure> {
    daemon.call(method, argument).map_err(|error| failed(method, &error))
}

fn failed(method: Method, error: &CallError) -> Failure {
    let code = match error {
        // Another attempt, a moment later, may well find a server.
        CallError::Refused(text) if text == exchange::NO_MORE_TRIES => Code::TRY_AGAIN_LATER,
        CallError::Refused(_) | CallError::Broken(_) | CallError::Closed => Code::INTERNAL,
    };
    Failure::new(code, format!("error calling {}: {error}", method.name()))
}

/// The plugin's surroundings as the daemon wants them, `skel.CmdArgs`. It may run elsewhere, so the path is absolute.
fn call(attachment: &Attachment, netns: Option<&NetnsPath>, sys: &Sys<'_>) -> Value {
    let netns = netns.map_or("", NetnsPath::as_str);
    let absolute = std::path::absolute(netns)
        .map_or_else(|_| netns.to_owned(), |path| path.to_string_lossy().into_owned());
    let variable = |name| Value::text(&sys.env().var(name));
    Value::of([
        ("ContainerID", Value::text(attachment.container.as_str())),
        ("Netns", Value::Text(absolute)),
        ("IfName", Value::text(attachment.ifname.as_str())),
        ("Args", variable("CNI_ARGS")),
        ("Path", variable("CNI_PATH")),
        ("NetnsOverride", variable("CNI_NETNS_OVERRIDE")),
        ("StdinData", Value::Bytes(sys.stdin().to_vec())),
    ])
}

/// Reads every kind of input that others can send, for fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
