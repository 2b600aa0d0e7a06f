// SPDX-License-Identifier: Apache-2.0
//! The `firewall` plugin: lets a container's packets through the host's FORWARD chain or puts its addresses into a zone
//! of firewalld, and with `ingressPolicy` keeps others' out (reference: `plugins/meta/firewall`). It works in the host's
//! namespace only.
//!
//! Rules of an address say nothing of their owner. DEL removes those of prevResult; the addresses are also remembered
//! below `/run/cnibox`, so that DEL works without prevResult and GC finds what is left. Shared chains and isolation
//! rules stay, since other containers may use them.

mod check;
mod collect;
mod config;
mod firewalld;
mod plan;

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request};
use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Batch, Engine, Error, Family, TableRef};
use cnibox_spec::{CniResult, CniVersion, Code};
use cnibox_sys::{Coded, Failure, Memo, Memory, Sys, Txn, Undo};
use thiserror::Error;

pub use config::{Backend, Config, ConfigError, IngressPolicy};
use firewalld::Zone;
use plan::{Desired, FORWARD_CHAIN};

/// The plugin.
pub struct Firewall;

/// What can go wrong with a good configuration.
#[derive(Debug, Error)]
enum FirewallError {
    #[error("could not initialize iptables protocol {protocol}: {source}")]
    NoTool { protocol: u8, source: Error },
    #[error("{0}")]
    Rules(Error),
    #[error("expected {chain} rule {rule} not found")]
    NoChainRule { chain: &'static str, rule: String },
    #[error("expected rule {0} not found")]
    NoRule(String),
    #[error("firewall rules cannot be set up: {0}")]
    NotAvailable(Error),
}

impl Coded for FirewallError {
    fn code(&self) -> Code {
        match self {
            Self::Rules(error) if error.is_transient() => Code::TRY_AGAIN_LATER,
            Self::NotAvailable(_) => Code::PLUGIN_NOT_AVAILABLE,
            Self::NoTool { .. } | Self::Rules(_) | Self::NoChainRule { .. } | Self::NoRule(_) => {
                Code::INTERNAL
            }
        }
    }
}

impl FirewallError {
    /// The reference looks for the tools of both families first; protocols are numbered as it numbers them.
    fn of(error: Error) -> Self {
        if let Error::ToolMissing { program } = &error {
            return Self::NoTool { protocol: u8::from(program.starts_with("ip6tables")), source: error };
        }
        Self::Rules(error)
    }
}

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const VERSIONS: &'static [CniVersion] = &[CniVersion::V0_4_0, CniVersion::V1_0_0, CniVersion::V1_1_0];
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Ok(Config::parse(input)?)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        let desired = plan::desired(config, result)?;
        admit(request, sys, desired)?;
        Ok(result.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let memory = Memory::of(Self::NAME);
        let attachment = Memo::new(&request.conf.network, &request.args.container, &request.args.ifname);
        let memo = memory.recall(&attachment);
        let remembered = memo.as_ref().map(addresses).unwrap_or_default();
        let told = host_addresses(&request.config);
        withdraw(&request.config, remembered.into_iter().chain(told).collect(), sys)?;
        // One that could not be read stays for the next DEL.
        if let Some(memo) = memo {
            memory.forget(&memo);
        }
        Ok(())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        let mut desired = plan::desired(config, result)?;
        if Backend::choose(config.backend, sys.env()) == Backend::Firewalld {
            Zone::new(&config.zone, sys.env()).require_sources(&host_addresses(config))?;
            desired = plan::policy_only(desired);
        }
        check::present(&desired, sys)
    }

    /// One question to the packet filter, which asks for the privilege and the kernel part that ADD needs; none where
    /// firewalld does all of it.
    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let config = &request.config;
        let backend = Backend::choose(config.backend, sys.env());
        if config.backend == Some(Backend::Firewalld) {
            firewalld::require_running(sys.env())?;
        }
        if backend == Backend::Firewalld && config.policy == IngressPolicy::Open {
            return Ok(());
        }
        sys.require_net_admin()?;
        let table = TableRef::Xt(Family::Ipv4, Table::Filter);
        sys.engine()?.chain_exists(&table, FORWARD_CHAIN).map_err(FirewallError::NotAvailable)?;
        Ok(())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        collect::stale(request, sys)
    }
}

/// Lets the container's packets through with the backend of this moment, and remembers its addresses.
fn admit(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    desired: Vec<Desired>,
) -> Result<(), Failure> {
    let config = &request.config;
    let backend = Backend::choose(config.backend, sys.env());
    let memory = Memory::of(Firewall::NAME);
    let attachment = Memo::new(&request.conf.network, &request.args.container, &request.args.ifname);
    let superseded = superseded(&memory, &attachment, config);
    if !superseded.is_empty() {
        withdraw(config, superseded, sys)?;
    }
    if !desired.is_empty() {
        memory.note(&Memo { notes: notes(config), ..attachment.clone() });
    }
    let outcome = match backend {
        Backend::Iptables => install(sys, &desired),
        Backend::Firewalld => add_to_zone(config, sys, desired),
    };
    outcome.inspect_err(|_| memory.forget(&attachment))
}

/// The addresses into the zone, the ingress policy into the packet filter: both or none.
fn add_to_zone(config: &Config, sys: &mut Sys<'_>, desired: Vec<Desired>) -> Result<(), Failure> {
    let zone = Zone::new(&config.zone, sys.env());
    let added = zone.add_sources(&host_addresses(config))?;
    install(sys, &plan::policy_only(desired)).map_err(|mut failure| {
        if let Err(error) = zone.remove_sources_if_present(&added) {
            failure.add_details(&format!("undo: {error}"));
        }
        failure
    })
}

/// Writes the rules of all families, all of them or none.
fn install(sys: &mut Sys<'_>, desired: &[Desired]) -> Result<(), Failure> {
    if desired.is_empty() {
        return Ok(());
    }
    let (mut batch, mut undo) = (Batch::new(), Batch::new());
    for family in desired {
        family.install(&mut batch);
    }
    for (family, rules) in may_be_left_alone(desired, sys) {
        let engine = sys.engine().map_err(FirewallError::of)?;
        // Rules that are there belong to another attachment with the same address, too.
        for rule in engine.missing(family, Table::Filter, FORWARD_CHAIN, rules).map_err(FirewallError::of)? {
            undo.xt(family, Table::Filter).delete_rule(FORWARD_CHAIN, rule.clone());
        }
    }
    Txn::run(sys, |tx| {
        tx.attempt(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(FirewallError::of)
        })
    })
}

/// The addresses that an earlier ADD of the same attachment was for, when it was not followed by DEL: nobody would know
/// of their rules any more.
fn superseded(memory: &Memory, attachment: &Memo, config: &Config) -> BTreeSet<IpAddr> {
    let Some(earlier) = memory.recall(attachment) else { return BTreeSet::new() };
    let mut gone = addresses(&earlier);
    let current = notes(config);
    gone.retain(|ip| !current.contains(&ip.to_string()));
    if !gone.is_empty() {
        for other in memory.all().iter().filter(|other| !other.is_about(attachment)) {
            let in_use = addresses(other);
            gone.retain(|ip| !in_use.contains(ip));
        }
    }
    gone.into_iter().collect()
}

/// The rules that a failure may leave behind: over netlink none, since all families are one transaction; with the
/// tool those of the first family when the second fails.
fn may_be_left_alone<'d>(desired: &'d [Desired], sys: &mut Sys<'_>) -> Vec<(Family, &'d [Rule])> {
    match desired {
        [first, _] if sys.engine().is_ok_and(Engine::uses_tool) => {
            vec![(first.family, first.addresses.as_slice())]
        }
        _ => Vec::new(),
    }
}

/// Takes these addresses out of what may let them through. Where the choice is the host's, firewalld may have come
/// since ADD, so the rules go in any case.
fn withdraw(config: &Config, addresses: BTreeSet<IpAddr>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    if addresses.is_empty() {
        return Ok(());
    }
    let mut failures = Vec::new();
    if Backend::choose(config.backend, sys.env()) == Backend::Firewalld {
        let sources: Vec<_> = addresses.iter().copied().collect();
        let removed = Zone::new(&config.zone, sys.env()).remove_sources_if_present(&sources);
        failures.extend(removed.err().map(Failure::from));
    }
    if config.backend != Some(Backend::Firewalld) {
        failures.extend(remove(addresses, sys).err());
    }
    Failure::collect(failures)
}

/// Removes the rules of these addresses.
fn remove(addresses: BTreeSet<IpAddr>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let batch = plan::remove(addresses.iter().copied().filter(|ip| Family::of(*ip) == family));
        if batch.is_empty() {
            continue;
        }
        let removed = sys.engine().and_then(|engine| engine.clear(&batch));
        failures.extend(removed.err().map(|error| FirewallError::of(error).into()));
    }
    Failure::collect(failures)
}

/// All addresses of prevResult, whatever interface they are on.
fn host_addresses(config: &Config) -> Vec<IpAddr> {
    config.prev_result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.ip()).collect()
}

fn notes(config: &Config) -> Vec<String> {
    host_addresses(config).iter().map(IpAddr::to_string).collect()
}

/// The addresses of a memo.
fn addresses(memo: &Memo) -> BTreeSet<IpAddr> {
    memo.notes.iter().filter_map(|note| note.parse().ok()).collect()
}
