// SPDX-License-Identifier: Apache-2.0
//! Every plugin that is not in Nomad's chain by itself: ADD and DEL, and the programs that it starts besides.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cnibox_testkit::Sandbox;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::costs;
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::Samples;
use crate::services::{BUS, Service};
use crate::turns::{Side, Turn, side_by_side};

/// One row per plugin and verb. What this kernel lacks is measured in the complete one.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let mut rows = Vec::new();
    let mut lacking = Vec::new();
    for plugin in PLUGINS {
        match measure(options, plugin)? {
            Some(both) => rows.extend(both),
            None => lacking.push(plugin.name),
        }
    }
    let mut table = Section::new(
        "Plugin by plugin",
        "Interface plugins with the static IPAM plugin; the others behind ptp or, dhcp, behind macvlan, of which only their \
         own time counts. Other processes: programs that the call starts and that are no plugins. User Mode Linux: the \
         complete kernel of `scripts/full-kernel`, for what this one lacks; there system calls are slow for both.",
        &["plugin, verb", "cnibox", "Go plugins", "ratio", "other processes, cnibox", "other processes, Go"],
    );
    if !lacking.is_empty() {
        rows.extend(in_full_kernel(options, &lacking)?.into_iter().map(|mut row| {
            row.what += ", User Mode Linux";
            row
        }));
    }
    for Row { what, times: [ours, go], programs } in &rows {
        let ratio = times(go / ours);
        let [my_programs, their_programs] = programs.map(|count| count.to_string());
        table.row([what.clone(), ms(*ours), ms(*go), ratio.clone(), my_programs, their_programs]);
        table.headline(what, ms(*ours), ms(*go), ratio);
    }
    let started = [0, 1].map(|side| rows.iter().filter_map(|row| row.programs.get(side)).sum::<u64>());
    let [ours, go] = started.map(|count| count.to_string());
    table.headline("other processes, all of these together", ours, go, String::new());
    Ok(vec![table])
}

/// In the complete kernel: measures the plugins of these names and prints the rows for [`in_full_kernel`].
pub(crate) fn rows(options: &Options, names: &[String]) -> Result<String> {
    let mut rows = Vec::new();
    for plugin in PLUGINS.iter().filter(|plugin| names.iter().any(|name| name == plugin.name)) {
        match measure(options, plugin)? {
            Some(both) => rows.extend(both),
            None => bail!("the complete kernel has no {}", plugin.name),
        }
    }
    Ok(serde_json::to_string(&rows)?)
}

/// A line of the table: ours, then Go's.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    what: String,
    /// Medians in milliseconds.
    times: [f64; 2],
    /// Programs started that are no plugins.
    programs: [u64; 2],
}

fn in_full_kernel(options: &Options, names: &[&str]) -> Result<Vec<Row>> {
    let Some(script) = &options.full_kernel else {
        bail!(
            "this kernel lacks {}; --full-kernel names the script that boots a complete one",
            names.join(", ")
        );
    };
    let mut guest = Command::new(script);
    guest.env("FULLKERNEL_RW", "");
    guest.arg(std::env::current_exe().context("own path")?);
    guest.arg("--ours").arg(&options.ours).arg("--reference").arg(&options.reference);
    guest.args(["--rounds", &options.rounds(ROUNDS).to_string()]);
    guest.args(names.iter().flat_map(|name| ["--rows", name]));
    let output = guest.stderr(Stdio::inherit()).output().context("start the complete kernel")?;
    let answer = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("in the complete kernel: {}: {answer}", output.status);
    }
    serde_json::from_str(&answer).with_context(|| format!("rows of the complete kernel: {answer:?}"))
}

/// A plugin, its own fields, and what it needs.
struct Plugin {
    /// In the table.
    name: &'static str,
    kind: &'static str,
    fields: &'static str,
    /// What comes before it in the chain.
    base: Option<&'static str>,
    /// A link that the kernel must be able to make.
    needs: Option<&'static str>,
    service: Option<Service>,
}

impl Plugin {
    const fn new(kind: &'static str, fields: &'static str) -> Self {
        Self { name: kind, kind, fields, base: None, needs: None, service: None }
    }

    const fn behind(self, base: &'static str) -> Self {
        Self { base: Some(base), ..self }
    }

    const fn needs(self, link: &'static str) -> Self {
        Self { needs: Some(link), ..self }
    }

    const fn with(self, service: Service) -> Self {
        Self { service: Some(service), ..self }
    }

    const fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// A namespace with an interface and an address.
const ROUTED: &str = r#"{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]}}"#;
/// An interface on the uplink, without an address.
const ON_THE_UPLINK: &str = r#"{"type": "macvlan", "master": "up9"}"#;

const PLUGINS: &[Plugin] = &[
    Plugin::new("ptp", r#"{"ipMasq": true, "ipam": IPAM}"#),
    Plugin::new("macvlan", r#"{"master": "up9", "ipam": IPAM}"#),
    Plugin::new("ipvlan", r#"{"master": "up9", "ipam": IPAM}"#).needs("link up9 type ipvlan"),
    Plugin::new("vlan", r#"{"master": "up9", "vlanId": 42, "ipam": IPAM}"#).needs("link up9 type vlan id 9"),
    Plugin::new("host-device", r#"{"device": "up9", "ipam": IPAM}"#),
    Plugin::new("dummy", r#"{"ipam": IPAM}"#).needs("type dummy"),
    Plugin::new("tap", r#"{"ipam": IPAM}"#),
    Plugin::new("static", r#"{"ipam": IPAM}"#),
    Plugin::new("dhcp", r#"{"ipam": {"type": "dhcp"}}"#).behind(ON_THE_UPLINK).with(Service::Dhcp),
    Plugin::new("tuning", r#"{"mtu": 1400, "promisc": true, "sysctl": {"net.core.somaxconn": "500"}}"#)
        .behind(ROUTED),
    Plugin::new(
        "bandwidth",
        r#"{"ingressRate": 8000000, "ingressBurst": 800000, "egressRate": 8000000, "egressBurst": 800000}"#,
    )
    .behind(ROUTED),
    Plugin::new("sbr", "{}").behind(ROUTED),
    Plugin::new("vrf", r#"{"vrfname": "blue"}"#).behind(ROUTED).needs("type vrf table 9"),
    Plugin::new("firewall", r#"{"backend": "firewalld"}"#)
        .behind(ROUTED)
        .with(Service::Firewalld)
        .called("firewall by firewalld"),
];

/// The static IPAM plugin's configuration, in the place of `IPAM`.
const IPAM: &str = r#"{"type": "static", "addresses": [{"address": "10.7.0.9/24", "gateway": "10.7.0.1"}]}"#;

/// What one side took and started.
struct Measured {
    samples: Samples,
    programs: Vec<(&'static str, u64)>,
}

impl Measured {
    fn programs(&self, verb: &str) -> u64 {
        self.programs.iter().filter(|(known, _)| *known == verb).map(|(_, count)| count).sum()
    }
}

/// ADD and DEL of one plugin; `None` where the kernel lacks what it needs.
fn measure(options: &Options, plugin: &Plugin) -> Result<Option<Vec<Row>>> {
    let rounds = options.rounds(ROUNDS);
    let sides = side_by_side(&[Side::Ours, Side::Go], |net, side, turn| {
        let bin = options.bin(side);
        let chain = Chain::new(bin, plugin.network()?).with_env(BUS);
        let (is_supported, _services) = turn.take(|| {
            uplink(net);
            let services = plugin.service.map(|service| service.start(net, bin, "far9")).transpose()?;
            Ok((plugin.needs.is_none_or(has), services))
        })?;
        if !is_supported {
            return Ok(None);
        }
        let mut samples = Samples::default();
        round(&chain, turn, (0, &mut Samples::default()))?;
        for number in 1..=rounds {
            round(&chain, turn, (number, &mut samples))?;
        }
        let programs = turn.take(|| costs::programs(net.dir(), &chain, &Pod::new(rounds + 1, 0)?))?;
        Ok(Some(Measured { samples, programs }))
    })?;
    let Ok([Some(ours), Some(go)]) = <[_; 2]>::try_from(sides) else { return Ok(None) };
    let row = |verb: &str| Row {
        what: format!("{}, {verb}", plugin.name),
        times: [&ours, &go].map(|side| side.samples.median(verb, plugin.kind)),
        programs: [&ours, &go].map(|side| side.programs(verb)),
    };
    Ok(Some(["ADD", "DEL"].map(row).into()))
}

fn round(chain: &Chain, turn: &Turn<'_>, (number, samples): (usize, &mut Samples)) -> Result<()> {
    let pod = Pod::new(number, 0)?;
    let result = turn.take(|| chain.add(&pod, samples))?;
    turn.take(|| chain.del(&pod, &result, samples))
}

impl Plugin {
    fn network(&self) -> Result<Value> {
        let mut own: Value = serde_json::from_str(&self.fields.replace("IPAM", IPAM))?;
        own["type"] = json!(self.kind);
        let base: Option<Value> = self.base.map(serde_json::from_str).transpose()?;
        let plugins: Vec<_> = base.into_iter().chain([own]).collect();
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
