// SPDX-License-Identifier: Apache-2.0
//! The `firewall` plugin: lets a container's packets through the host's FORWARD chains or puts its addresses into a zone
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
mod native;
mod plan;

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Batch, Engine, Error, Family, TableRef};
use cnibox_spec::{CniResult, CniVersion, Code};
use cnibox_sys::{Coded, Failure, Ledger, Sys, Txn, Undo, UndoStep};
use thiserror::Error;

use config::{Backend, ConfigError, IngressPolicy};

pub use config::Config;
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
    #[error("expected native rules not found; missing: {0}")]
    NoNativeRule(String),
    #[error("firewall rules cannot be set up: {0}")]
    NotAvailable(Error),
}

impl Coded for FirewallError {
    fn code(&self) -> Code {
        match self {
            Self::Rules(error) if error.is_transient() => Code::TRY_AGAIN_LATER,
            Self::NotAvailable(_) => Code::PLUGIN_NOT_AVAILABLE,
            Self::NoTool { .. }
            | Self::Rules(_)
            | Self::NoChainRule { .. }
            | Self::NoRule(_)
            | Self::NoNativeRule(_) => Code::INTERNAL,
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
    const ROLE: Role = Role::Chained;
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
        let mut own = addresses(sys.notes());
        own.extend(host_addresses(&request.config));
        let mut gone = BTreeSet::new();
        for address in own {
            if !sys.is_anothers_address(address)? {
                gone.insert(address);
            }
        }
        withdraw(&request.config, gone, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        let mut desired = plan::desired(config, result)?;
        let backend = Backend::choose(config.backend, sys.env());
        if asks_firewalld(backend, sys) {
            Zone::new(&config.zone, sys.env()).require_sources(&host_addresses(config))?;
        }
        if backend == Backend::Firewalld {
            desired = plan::policy_only(desired);
        }
        check::present(backend, &desired, sys)
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
    let superseded = superseded(request, sys);
    if !superseded.is_empty() {
        withdraw(config, superseded, sys)?;
    }
    Txn::run(sys, |tx| {
        if !desired.is_empty() {
            tx.note(notes(config))?;
        }
        if asks_firewalld(backend, tx.sys()) {
            add_to_zone(tx, config)?;
        }
        match backend {
            Backend::Iptables | Backend::Nftables => install(tx, backend, &desired),
            Backend::Firewalld => install(tx, backend, &plan::policy_only(desired)),
        }
    })
}

/// Whether the addresses go into a zone of firewalld: beside native rules, too, where it runs, since no accept of another
/// chain keeps its own from dropping.
fn asks_firewalld(backend: Backend, sys: &Sys<'_>) -> bool {
    match backend {
        Backend::Firewalld => true,
        Backend::Nftables => firewalld::require_running(sys.env()).is_ok(),
        Backend::Iptables => false,
    }
}

/// The addresses into the zone.
fn add_to_zone(tx: &mut Txn<'_, '_>, config: &Config) -> Result<(), Failure> {
    let zone = Zone::new(&config.zone, tx.sys().env());
    let added = tx.shared(|_| zone.add_sources(&host_addresses(config)))?;
    tx.risky_step(ZoneSources { zone: config.zone.clone(), added }, |_| Ok::<_, Failure>(()))
}

/// Takes addresses out of a zone that they were not in before.
#[derive(Clone, Debug)]
struct ZoneSources {
    zone: String,
    added: Vec<IpAddr>,
}

impl UndoStep for ZoneSources {
    fn undo(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(Zone::new(&self.zone, sys.env()).remove_sources_if_present(&self.added)?)
    }
}

/// Writes the rules of all families, all of them or none.
fn install(tx: &mut Txn<'_, '_>, backend: Backend, desired: &[Desired]) -> Result<(), Failure> {
    if desired.is_empty() {
        return Ok(());
    }
    if is_native(backend, desired, tx.sys())? {
        let batch = native::install(desired, tx.sys())?;
        // One transaction, unless the accepts beside it are a tool's to write: those an undo leaves behind, as it must
        // where another attachment has the address.
        return tx
            .shared(|sys| sys.engine().and_then(|engine| engine.apply(&batch)).map_err(FirewallError::of));
    }
    let (batch, mut undo) = (plan::install(desired), Batch::new());
    for (family, rules) in may_be_left_alone(desired, tx.sys()) {
        let engine = tx.sys().engine().map_err(FirewallError::of)?;
        // Rules that are there belong to another attachment with the same address, too.
        for rule in engine.missing(family, Table::Filter, FORWARD_CHAIN, rules).map_err(FirewallError::of)? {
            undo.xt(family, Table::Filter).delete_rule(FORWARD_CHAIN, rule.clone());
        }
    }
    tx.risky_step(Undo::Rules(undo), |sys| {
        sys.engine().and_then(|engine| engine.apply(&batch)).map_err(FirewallError::of)
    })
}

/// Whether the rules are written natively: where that is asked for, and where the kernel cannot hold them otherwise.
fn is_native(backend: Backend, desired: &[Desired], sys: &mut Sys<'_>) -> Result<bool, Failure> {
    if backend == Backend::Nftables {
        return Ok(true);
    }
    Ok(sys.cannot_hold(&plan::install(desired)).map_err(FirewallError::of)?)
}

/// The addresses that an earlier ADD of the same attachment was for, when it was not followed by DEL: nobody would know
/// of their rules any more.
fn superseded(request: &Request<'_, Config, AddArgs>, sys: &Sys<'_>) -> BTreeSet<IpAddr> {
    let mut gone = addresses(sys.notes());
    for current in host_addresses(&request.config) {
        gone.remove(&current);
    }
    if !gone.is_empty() {
        let all = Ledger::of_host().all();
        for other in all.iter().filter(|other| other.attachment != request.args.attachment) {
            let in_use = addresses(other.notes(Firewall::NAME));
            gone.retain(|ip| !in_use.contains(ip));
        }
    }
    gone
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
    if asks_firewalld(Backend::choose(config.backend, sys.env()), sys) {
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
        let addresses: Vec<_> = addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        if addresses.is_empty() {
            continue;
        }
        let batch = plan::remove(addresses.iter().copied());
        let removed = sys.engine().and_then(|engine| engine.clear(&batch));
        failures.extend(removed.err().map(|error| FirewallError::of(error).into()));
        // Whatever the configuration and the kernel say by now. Not in the same transaction: what is a native rule of
        // iptables' tables may be one of its own, too.
        let removed = native::remove(family, &addresses, sys);
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

/// The addresses that are noted.
fn addresses(notes: &[String]) -> BTreeSet<IpAddr> {
    notes.iter().filter_map(|note| note.parse().ok()).collect()
}
