// SPDX-License-Identifier: Apache-2.0
//! The `portmap` plugin: forwards ports of the host to a container that an earlier plugin of the chain connected
//! (reference: `plugins/meta/portmap`). It works in the host's namespace only; `CNI_NETNS` is never entered.
//!
//! Rules of a container are found by network and container ID alone, so DEL needs neither prevResult nor the ports,
//! and cleans the tables of both backends. Chains that containers share stay.

mod apply;
mod check;
mod collect;
mod config;
mod detach;
mod error;
mod iptables;
mod nftables;
mod others;
mod owner;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netfilter::{Engine, Family, TableRef, xt};
use cnibox_spec::{CniResult, Code, Verb};
use cnibox_sys::{Backend, Failure, Sys};

use config::ConfigError;

pub use config::Config;
use owner::Owner;
use plan::Desired;

/// The plugin.
pub struct Portmap;

impl Plugin for Portmap {
    const NAME: &'static str = "portmap";
    const ROLE: Role = Role::Chained;
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input).map_err(|failure| prefixed(failure, input.verb))
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let prev_result = request.config.prev_result.as_ref().ok_or(ConfigError::NotChained)?;
        if request.config.mappings.is_empty() {
            return Ok(prev_result.clone());
        }
        let desired = desired(request, sys, Verb::Add)?;
        apply::install(request, sys, &desired)?;
        Ok(prev_result.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        detach::everything(request, sys)
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
        let (config, engine) = (&request.config, sys.engine()?);
        let usable = match config.backend {
            Some(backend) => usable(config, backend, engine),
            None => usable(config, Backend::Iptables, engine)
                .or_else(|_| usable(config, Backend::Nftables, engine)),
        };
        let text = |error| format!("port mappings cannot be set up: {error}");
        usable.map_err(|error| Failure::new(Code::PLUGIN_NOT_AVAILABLE, text(error)))
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
    let backend = sys.backend(config.backend, || desired_with(request, Backend::Iptables).install())?;
    config.fits(backend).map_err(|error| prefixed(error.into(), verb))?;
    Ok(desired_with(request, backend))
}

fn desired_with(request: &Request<'_, Config, AddArgs>, backend: Backend) -> Desired {
    let attachment = &request.args.attachment;
    Desired::new(&request.config, backend, Owner::of(attachment), attachment.ifname.as_str())
}

/// Whether ADD could write the backend's rules.
fn usable(config: &Config, backend: Backend, engine: &mut Engine) -> cnibox_netfilter::Result<()> {
    match backend {
        Backend::Iptables => {
            engine.chain_exists(&TableRef::Xt(Family::Ipv4, xt::Table::Nat), iptables::TOP)?;
            engine.require(&plan::sample(config), "forward ports in iptables' tables")
        }
        Backend::Nftables => {
            engine.chain_exists(&nftables::table_ref(Family::Ipv4), nftables::PORTS).map(drop)
        }
    }
}

/// The reference says for ADD and DEL where it failed.
fn prefixed(failure: Failure, verb: Verb) -> Failure {
    match verb {
        Verb::Add | Verb::Del => failure.prefixed("failed to parse config: "),
        Verb::Check | Verb::Status | Verb::Gc => failure,
    }
}
