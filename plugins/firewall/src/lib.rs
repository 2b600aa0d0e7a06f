// SPDX-License-Identifier: Apache-2.0
//! The `firewall` plugin: lets a container's packets through the host's FORWARD chains or puts its addresses into a zone
//! of firewalld, and with `ingressPolicy` keeps others' out (reference: `plugins/meta/firewall`). It works in the host's
//! namespace only.
//!
//! Rules of an address say nothing of their owner. DEL removes those of prevResult; the addresses are also remembered
//! below `/run/cnibox`, so that DEL works without prevResult and GC finds what is left. Shared chains and isolation
//! rules stay, since other containers may use them.

mod apply;
mod check;
mod collect;
mod config;
mod detach;
mod error;
mod firewalld;
mod native;
mod plan;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_netfilter::xt::Table;
use cnibox_netfilter::{Family, TableRef};
use cnibox_spec::{CniResult, CniVersion};
use cnibox_sys::{Failure, Sys};

use config::{Backend, ConfigError, IngressPolicy};
use error::FirewallError;
use firewalld::Zone;
use plan::FORWARD_CHAIN;

pub use config::Config;

/// The plugin.
pub struct Firewall;

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const ROLE: Role = Role::Chained;
    const VERSIONS: &'static [CniVersion] = &[CniVersion::V0_4_0, CniVersion::V1_0_0, CniVersion::V1_1_0];
    type Config = Config;

    fn config(input: &Input<'_>) -> Result<Config, Failure> {
        Config::new(input)
    }

    fn add(request: &Request<'_, Config, AddArgs>, sys: &mut Sys<'_>) -> Result<CniResult, Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        let desired = plan::desired(config, result)?;
        apply::admit(request, sys, desired)?;
        Ok(result.clone())
    }

    fn del(request: &Request<'_, Config, DelArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let mut own = detach::addresses(sys.notes());
        own.extend(request.config.host_addresses());
        own.extend(sys.given_addresses());
        let of_others = sys.addresses_of_others(&own, request.args.netns.as_ref())?;
        own.retain(|address| !of_others.contains(address));
        detach::withdraw(&request.config, own, sys)
    }

    fn check(request: &Request<'_, Config, CheckArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        let config = &request.config;
        let result = config.prev_result.as_ref().ok_or(ConfigError::NoPrevResult)?;
        let mut desired = plan::desired(config, result)?;
        let backend = Backend::choose(config.backend, sys.env());
        if backend.uses_firewalld(sys.env()) {
            Zone::new(&config.zone, sys.env()).require_sources(&config.host_addresses())?;
        }
        if backend == Backend::Firewalld {
            desired = plan::policy_only(desired);
        }
        Ok(check::present(backend, &desired, sys)?)
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
        let table = match backend {
            Backend::Nftables => native::table(Family::Ipv4),
            Backend::Iptables | Backend::Firewalld => TableRef::Xt(Family::Ipv4, Table::Filter),
        };
        sys.engine()?.chain_exists(&table, FORWARD_CHAIN).map_err(FirewallError::NotAvailable)?;
        Ok(())
    }

    fn gc(request: &Request<'_, Config, GcArgs>, sys: &mut Sys<'_>) -> Result<(), Failure> {
        collect::stale(request, sys)
    }
}
