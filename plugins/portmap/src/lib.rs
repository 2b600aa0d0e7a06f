// SPDX-License-Identifier: Apache-2.0
//! The `portmap` plugin: forwards ports of the host to a container that an earlier plugin of the chain connected
//! (reference: `plugins/meta/portmap`). It works in the host's namespace only; `CNI_NETNS` is never entered.
//!
//! Rules of a container are found by network and container ID alone, so DEL needs neither prevResult nor the ports,
//! and cleans the tables of both backends. Chains that containers share stay.

mod check;
mod collect;
mod config;
mod iptables;
mod nftables;
mod others;
mod owner;
mod plan;
mod remove;
mod setup;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netfilter::{Family, TableRef, xt};
use cnibox_spec::{CniResult, Code, Verb};
use cnibox_sys::{Coded, Failure, Sys};
use thiserror::Error;

use config::{Backend, ConfigError};

pub use config::Config;
use owner::Owner;
use plan::Desired;

/// The plugin.
pub struct Portmap;

/// What can go wrong with a good configuration.
#[derive(Debug, Error)]
enum PortmapError {
    #[error("unable to setup DNAT: {0}")]
    Iptables(cnibox_netfilter::Error),
    #[error("unable to setup DNAT: Chain '{0}' does not exist")]
    MarkChain(String),
    #[error("unable to set up nftables rules for port mappings: {0}")]
    Nftables(cnibox_netfilter::Error),
    #[error("unable to enable route_localnet: {0}")]
    RouteLocalnet(cnibox_netns::sysctl::Error),
    #[error("could not teardown {family} dnat: {source}")]
    Teardown { family: &'static str, source: cnibox_netfilter::Error },
    #[error("neither iptables nor ip6tables is usable, (iptables) {0}, (ip6tables) {1}")]
    Unusable(cnibox_netfilter::Error, cnibox_netfilter::Error),
    #[error("error deleting nftables rules: {0}")]
    NftTeardown(cnibox_netfilter::Error),
    #[error("could not check {family} dnat: {drift}")]
    Drift { family: &'static str, drift: check::Drift },
    #[error("missing hostport rules in {0:?} chain")]
    MissingNative(&'static str),
    #[error("port mappings cannot be set up: {0}")]
    NotAvailable(cnibox_netfilter::Error),
}

impl Coded for PortmapError {
    fn code(&self) -> Code {
        match self {
            Self::Iptables(error) | Self::Nftables(error) | Self::NftTeardown(error)
                if error.is_transient() =>
            {
                Code::TRY_AGAIN_LATER
            }
            Self::Teardown { source, .. } if source.is_transient() => Code::TRY_AGAIN_LATER,
            Self::MarkChain(_) => Code::INVALID_CONFIG,
            Self::NotAvailable(_) => Code::PLUGIN_NOT_AVAILABLE,
            Self::Iptables(_)
            | Self::Nftables(_)
            | Self::RouteLocalnet(_)
            | Self::Teardown { .. }
            | Self::Unusable(..)
            | Self::NftTeardown(_)
            | Self::Drift { .. }
            | Self::MissingNative(_) => Code::INTERNAL,
        }
    }
}

impl Plugin for Portmap {
    const NAME: &'static str = "portmap";
    const ROLE: Role = Role::Chained;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::parse(input).map_err(|error| prefixed(error, input.verb))
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let prev_result = request.config.prev_result.as_ref().ok_or(ConfigError::NotChained)?;
        if request.config.mappings.is_empty() {
            return Ok(prev_result.clone());
        }
        let desired = desired(request, sys, Verb::Add)?;
        setup::install(request, sys, &desired)?;
        Ok(prev_result.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        remove::everything(request, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        if request.config.prev_result.is_none() {
            return Err(ConfigError::NoPrevResult.into());
        }
        if request.config.mappings.is_empty() {
            return Ok(());
        }
        let desired = desired(request, sys, Verb::Check)?;
        let present = check::present(&desired, sys);
        // What the host chose at ADD it may choose no more: either will do.
        let other = desired.backend().other();
        present.or_else(|missing| match request.config.backend {
            None => check::present(&desired_with(request, other), sys).map_err(|_| missing),
            Some(_) => Err(missing),
        })
    }

    /// Questions to the packet filter, which asks for the privilege and the parts of the kernel that ADD needs.
    fn status(request: &Request<'_, Config, ()>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        sys.require_net_admin()?;
        let backends = match request.config.backend {
            Some(backend) => vec![backend],
            None => vec![Backend::Iptables, Backend::Nftables],
        };
        let mut refusal = None;
        for backend in backends {
            let (table, chain) = match backend {
                Backend::Iptables => (TableRef::Xt(Family::Ipv4, xt::Table::Nat), iptables::TOP),
                Backend::Nftables => (nftables::table_ref(Family::Ipv4), nftables::PORTS),
            };
            let usable = sys.engine()?.chain_exists(&table, chain).map(drop);
            let usable = usable.and_then(|()| match backend {
                Backend::Iptables => {
                    sys.engine()?.require(&plan::sample(&request.config), "forward ports in iptables' tables")
                }
                Backend::Nftables => Ok(()),
            });
            match usable {
                Ok(()) => return Ok(()),
                Err(error) => refusal = Some(error),
            }
        }
        refusal.map_or(Ok(()), |error| Err(PortmapError::NotAvailable(error).into()))
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        collect::stale(&request.conf.network, &request.args.valid, sys)
    }
}

/// What must be there for this attachment, with the backend that the configuration asks for, or else the host wants.
fn desired(
    request: &Request<'_, Config, AddArgs>,
    sys: &mut Sys<'_>,
    verb: Verb,
) -> Result<Desired, Failure> {
    let config = &request.config;
    let backend = match config.backend {
        Some(backend) => backend,
        None if sys.wants_native(&desired_with(request, Backend::Iptables).install())? => Backend::Nftables,
        None => Backend::Iptables,
    };
    config.fits(backend).map_err(|error| prefixed(error, verb))?;
    Ok(desired_with(request, backend))
}

fn desired_with(request: &Request<'_, Config, AddArgs>, backend: Backend) -> Desired {
    let attachment = &request.args.attachment;
    Desired::new(&request.config, backend, Owner::of(attachment), attachment.ifname.as_str())
}

/// The reference says for ADD and DEL where it failed.
fn prefixed(error: ConfigError, verb: Verb) -> Failure {
    let failure = Failure::from(error);
    match verb {
        Verb::Add | Verb::Del => failure.prefixed("failed to parse config: "),
        Verb::Check | Verb::Status | Verb::Gc => failure,
    }
}
