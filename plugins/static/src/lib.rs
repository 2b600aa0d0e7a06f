// SPDX-License-Identifier: Apache-2.0
//! The `static` IPAM plugin: answers with the addresses that configuration and runtime name (reference:
//! `plugins/ipam/static`). It keeps no state and touches nothing, so DEL and GC have nothing to do.

mod config;

use cnibox_harness::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, Plugin, Request, Role};
use cnibox_spec::{CniResult, Verb};
use cnibox_sys::{Failure, Sys};

/// The plugin.
pub struct Static;

impl Plugin for Static {
    const NAME: &'static str = "static";
    const ROLE: Role = Role::Ipam { asks_network: false };
    /// What ADD gives.
    type Config = CniResult;

    fn config(input: &Input<'_>) -> Result<CniResult, Failure> {
        match input.verb {
            Verb::Add => config::load(input, &input.args()),
            Verb::Check => {
                let config = config::load(input, &input.args())?;
                input.check_common("failed to load netconf")?;
                Ok(config)
            }
            // The addresses may be the runtime's, of which STATUS hears nothing.
            Verb::Status => config::load(input, ""),
            Verb::Del | Verb::Gc => Ok(CniResult::default()),
        }
    }

    fn add(request: &Request<'_, CniResult, AddArgs>, _: &mut Sys<'_>) -> Result<CniResult, Failure> {
        Ok(request.config.clone())
    }

    fn del(_: &Request<'_, CniResult, DelArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// As in the reference an address that prevResult lacks is no drift: only a gateway can be.
    fn check(request: &Request<'_, CniResult, CheckArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        let previous = request.conf.required_prev_result()?;
        for wanted in &request.config.ips {
            let Some(found) = previous.ips.iter().find(|ip| ip.address.ip() == wanted.address.ip()) else {
                continue;
            };
            if wanted.gateway.is_some() && wanted.gateway != found.gateway {
                let (address, ifname) = (found.address.ip(), &request.args.attachment.ifname);
                return Err(Failure::internal(format!(
                    "static: Failed to match addr {address} on interface {ifname}"
                )));
            }
        }
        Ok(())
    }

    /// A configuration that can be read is all that ADD needs.
    fn status(_: &Request<'_, CniResult, ()>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn gc(_: &Request<'_, CniResult, GcArgs>, _: &mut Sys<'_>) -> Result<(), Failure> {
        Ok(())
    }
}
