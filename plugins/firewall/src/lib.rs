// SPDX-License-Identifier: Apache-2.0
//! The `firewall` plugin: lets a container's packets through the host's FORWARD chain, and with `ingressPolicy` keeps
//! others' out (reference: `plugins/meta/firewall`). It works in the host's namespace only.
//!
//! Rules of an address say nothing of their owner. DEL removes those of prevResult; the addresses are also remembered
//! below `/run/cnibox`, so that DEL works without prevResult and GC finds what is left. Shared chains and isolation
//! rules stay, since other containers may use them.

mod check;
mod collect;
mod config;
mod plan;

use std::collections::BTreeSet;
use std::net::IpAddr;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request};
use cnibox_netfilter::xt::{Rule, Table};
use cnibox_netfilter::{Batch, Error, Family, Flavour, TableRef};
use cnibox_spec::{CniResult, CniVersion, Code};
use cnibox_sys::{Coded, Failure, Memo, Memory, Sys, Txn, Undo};
use thiserror::Error;

pub use config::{Backend, Config, ConfigError, IngressPolicy};
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
        Backend::choose(config.backend)?;
        install(request, sys, &plan::desired(config, result)?)?;
        Ok(result.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        Backend::choose(request.config.backend)?;
        let memory = Memory::of(Self::NAME);
        let attachment = Memo::new(&request.conf.network, &request.args.container, &request.args.ifname);
        let remembered = memory.recall(&attachment).map(|memo| addresses(&memo)).unwrap_or_default();
        let told = request.config.prev_result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.ip());
        remove(remembered.into_iter().chain(told).collect(), sys)?;
        memory.forget(&attachment);
        Ok(())
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        Backend::choose(config.backend)?;
        check::present(&plan::desired(config, result)?, sys)
    }

    /// One question to the packet filter, which asks for the privilege and the kernel part that ADD needs.
    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        Backend::choose(request.config.backend)?;
        sys.require_net_admin()?;
        let table = TableRef::Xt(Family::Ipv4, Table::Filter);
        sys.engine()?.chain_exists(&table, FORWARD_CHAIN).map_err(FirewallError::NotAvailable)?;
        Ok(())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        collect::stale(request.conf.network.as_str(), &request.args.valid, sys)
    }
}

/// Writes the rules of all families, all of them or none.
fn install(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    desired: &[Desired],
) -> Result<(), Failure> {
    if desired.is_empty() {
        return Ok(());
    }
    let memory = Memory::of(Firewall::NAME);
    let attachment = Memo::new(&request.conf.network, &request.args.container, &request.args.ifname);
    let (mut batch, mut undo) = (plan::remove(superseded(&memory, &attachment, &request.config)), Batch::new());
    for family in desired {
        family.install(&mut batch);
    }
    for (family, rules) in may_be_left_alone(desired, sys) {
        let engine = sys.engine().map_err(FirewallError::of)?;
        for rule in rules {
            // Rules that are there belong to another attachment with the same address, too.
            if !engine.rule_exists(family, Table::Filter, FORWARD_CHAIN, rule).map_err(FirewallError::of)? {
                undo.xt(family, Table::Filter).delete_rule(FORWARD_CHAIN, rule.clone());
            }
        }
    }
    memory.note(&Memo { notes: notes(&request.config), ..attachment.clone() });
    Txn::run(sys, |tx| {
        tx.attempt(Undo::Rules(undo), |sys| {
            sys.engine().and_then(|engine| engine.apply(&batch)).map_err(FirewallError::of)
        })
    })
    .inspect_err(|_| memory.forget(&attachment))
}

/// The addresses that an earlier ADD of the same attachment was for, when it was not followed by DEL: nobody would know
/// of their rules any more.
fn superseded(memory: &Memory, attachment: &Memo, config: &Config) -> Vec<IpAddr> {
    let Some(earlier) = memory.recall(attachment) else { return Vec::new() };
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
    let forced = sys.env().var("CNIBOX_NETFILTER") == "exec";
    let atomic = !forced && sys.engine().is_ok_and(|engine| engine.flavour() != Flavour::Legacy);
    match desired {
        [first, _] if !atomic => vec![(first.family, first.addresses.as_slice())],
        _ => Vec::new(),
    }
}

/// Removes the rules of these addresses. Where there is no tool there are no rules.
fn remove(addresses: BTreeSet<IpAddr>, sys: &mut Sys<'_>) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        let batch = plan::remove(addresses.iter().copied().filter(|ip| Family::of(*ip) == family));
        if batch.is_empty() {
            continue;
        }
        match sys.engine().and_then(|engine| engine.apply(&batch)) {
            Ok(()) | Err(Error::ToolMissing { .. }) => {}
            Err(error) => failures.push(FirewallError::of(error).into()),
        }
    }
    Failure::collect(failures)
}

fn notes(config: &Config) -> Vec<String> {
    config.prev_result.iter().flat_map(|result| &result.ips).map(|ip| ip.address.ip().to_string()).collect()
}

/// The addresses of a memo.
fn addresses(memo: &Memo) -> BTreeSet<IpAddr> {
    memo.notes.iter().filter_map(|note| note.parse().ok()).collect()
}
