// SPDX-License-Identifier: Apache-2.0
//! Every interface plugin and every meta plugin by itself: ADD and DEL, and the programs that it starts besides.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use cnibox_testkit::Sandbox;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::costs;
use crate::host::Pod;
use crate::options::Options;
use crate::report::{Section, ms, times};
use crate::samples::Samples;
use crate::turns::{Side, Turn, side_by_side};

/// One row per plugin and verb; a plugin whose kind of link this kernel lacks gets a row that says so.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let mut table = Section::new(
        "Plugin by plugin",
        "Interface plugins with the static IPAM plugin; meta plugins behind ptp, of which only their own time counts. Other \
         processes: programs that the call starts and that are no plugins.",
        &["plugin, verb", "cnibox", "Go plugins", "ratio", "other processes, cnibox", "other processes, Go"],
    );
    for plugin in PLUGINS {
        let sides = measure(options, plugin)?;
        let [Some(ours), Some(go)] = [0, 1].map(|side| sides.get(side).and_then(Option::as_ref)) else {
            let dash = || "-".to_owned();
            let what = format!("{} (not in this kernel)", plugin.name);
            table.row([what, dash(), dash(), dash(), dash(), dash()]);
            continue;
        };
        for verb in ["ADD", "DEL"] {
            let medians = [ours, go].map(|side| side.samples.median(verb, plugin.name));
            let [mine, theirs] = medians;
            let [my_programs, their_programs] = [ours, go].map(|side| side.programs(verb));
            let what = format!("{}, {verb}", plugin.name);
            let row = [what.clone(), ms(mine), ms(theirs), times(theirs / mine), my_programs, their_programs];
            table.row(row);
            table.headline(&what, ms(mine), ms(theirs), times(theirs / mine));
        }
    }
    Ok(vec![table])
}

/// A plugin, its own fields, and the kind of link that the kernel must have.
struct Plugin {
    name: &'static str,
    fields: &'static str,
    kind: Option<&'static str>,
    chained: bool,
}

const fn interface(name: &'static str, fields: &'static str, kind: Option<&'static str>) -> Plugin {
    Plugin { name, fields, kind, chained: false }
}

const fn meta(name: &'static str, fields: &'static str, kind: Option<&'static str>) -> Plugin {
    Plugin { name, fields, kind, chained: true }
}

const PLUGINS: &[Plugin] = &[
    interface("ptp", r#"{"ipMasq": true}"#, None),
    interface("macvlan", r#"{"master": "up9"}"#, None),
    interface("ipvlan", r#"{"master": "up9"}"#, Some("link up9 type ipvlan")),
    interface("vlan", r#"{"master": "up9", "vlanId": 42}"#, Some("link up9 type vlan id 9")),
    interface("host-device", r#"{"device": "up9"}"#, None),
    interface("dummy", "{}", Some("type dummy")),
    interface("tap", "{}", None),
    meta("tuning", r#"{"mtu": 1400, "promisc": true, "sysctl": {"net.core.somaxconn": "500"}}"#, None),
    meta(
        "bandwidth",
        r#"{"ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 8000000, "egressBurst": 800000}"#,
        None,
    ),
    meta("sbr", "{}", None),
    meta("vrf", r#"{"vrfname": "blue"}"#, Some("type vrf table 9")),
];

/// What one side took and started.
struct Measured {
    samples: Samples,
    programs: Vec<(&'static str, u64)>,
}

impl Measured {
    fn programs(&self, verb: &str) -> String {
        let found = self.programs.iter().find(|(known, _)| *known == verb);
        found.map_or_else(|| "-".to_owned(), |(_, count)| count.to_string())
    }
}

fn measure(options: &Options, plugin: &Plugin) -> Result<Vec<Option<Measured>>> {
    let rounds = options.rounds(ROUNDS);
    side_by_side(&[Side::Ours, Side::Go], |net, side, turn| {
        let chain = Chain::new(options.bin(side), plugin.network()?);
        let supported = turn.take(|| {
            uplink(net);
            Ok(plugin.kind.is_none_or(has))
        })?;
        if !supported {
            return Ok(None);
        }
        let mut samples = Samples::default();
        round(&chain, turn, (0, &mut Samples::default()))?;
        for number in 1..=rounds {
            round(&chain, turn, (number, &mut samples))?;
        }
        let programs = turn.take(|| costs::programs(net.dir(), &chain, &Pod::new(rounds + 1, 0)?))?;
        Ok(Some(Measured { samples, programs }))
    })
}

fn round(chain: &Chain, turn: &Turn<'_>, (number, samples): (usize, &mut Samples)) -> Result<()> {
    let pod = Pod::new(number, 0)?;
    let result = turn.take(|| chain.add(&pod, samples))?;
    turn.take(|| chain.del(&pod, &result, samples))
}

impl Plugin {
    fn network(&self) -> Result<Value> {
        let mut own: Value = serde_json::from_str(self.fields)?;
        own["type"] = json!(self.name);
        let ipam =
            json!({"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]});
        let plugins = if self.chained {
            json!([{"type": "ptp", "ipam": ipam}, own])
        } else {
            own["ipam"] = ipam;
            json!([own])
        };
        Ok(json!({"cniVersion": "1.0.0", "name": "single", "plugins": plugins}))
    }
}

/// The interface that others stand on, or that is lent.
fn uplink(net: &Sandbox) {
    net.run("ip", &["link", "add", "up9", "type", "veth", "peer", "name", "far9"]);
    net.run("ip", &["link", "set", "up9", "up"]);
    net.run("ip", &["link", "set", "far9", "up"]);
}

/// Whether the kernel makes such a link.
fn has(kind: &str) -> bool {
    let ip = |args: &str| {
        let status = Command::new(Path::new("ip")).args(args.split(' ')).output();
        status.is_ok_and(|output| output.status.success())
    };
    ip(&format!("link add probe0 {kind}")) && ip("link del probe0")
}

const ROUNDS: usize = 21;
