// SPDX-License-Identifier: Apache-2.0
//! The least that the usual tools need for the kernel objects of Nomad's chain: one `ip -batch` per namespace and one
//! `iptables-restore`, or one for each plugin that writes rules, since a runtime calls one after the other. No addresses
//! are managed and nothing is looked at, so no plugin can be expected to be faster.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cnibox_netns::{NetNs, sysctl};
use serde_json::Value;

use crate::chain::{WHOLE, timed};
use crate::pod::Pod;

/// How many transactions write a container's rules. The kernel validates a table once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Those of all plugins together.
    AtOnce,
    /// The bridge's, the firewall's, portmap's.
    ByPlugin,
}

impl Rules {
    /// Both take turns, so that what was before them is the same.
    pub(crate) fn of_round(round: usize) -> Self {
        if round.is_multiple_of(2) { Self::AtOnce } else { Self::ByPlugin }
    }

    /// What [`add`]'s time is noted for.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::AtOnce => WHOLE,
            Self::ByPlugin => "by plugin",
        }
    }
}

/// Lets the pod's interface speak IPv6 at once, as bridge does: what it says then goes to all ports of the bridge, and
/// takes as long as anything in an ADD. It would say it a second later, when duplicate addresses have been looked for.
pub(crate) fn prepare(pod: &Pod) -> Result<()> {
    let pod = NetNs::open(&pod.path).context("open a pod's namespace")?;
    // Without IPv6 nothing is said.
    pod.run(|| sysctl::write(&sysctl::conf("ipv6", "default", "accept_dad"), "0").ok())
        .context("enter a pod's namespace")?;
    Ok(())
}

/// Attaches a pod to the bridge `nomad`, which must exist with the chains that all containers share. Answers with the time.
pub(crate) fn add(pod: &Pod, written: Rules) -> Result<Duration> {
    let (veth, id, address) = (veth(pod), &pod.id, address(pod));
    let host = format!(
        "link add {veth} type veth peer name eth0 netns {id}\n\
         link set {veth} master nomad up\n\
         link set {veth} type bridge_slave hairpin on\n"
    );
    let inside = format!(
        "link set lo up\nlink set eth0 up\naddress add {address}/20 dev eth0\n\
         route add default via 172.26.64.1\n"
    );
    let mut time = run("ip", &["-batch", "-"], &host)? + run("ip", &["-netns", id, "-batch", "-"], &inside)?;
    let (masquerade, firewall, ports) = (masquerade(pod), firewall(pod, "-A"), port_mappings(pod));
    let transactions = match written {
        Rules::AtOnce => vec![table("filter", &firewall) + &table("nat", &(masquerade + &ports))],
        Rules::ByPlugin => vec![table("nat", &masquerade), table("filter", &firewall), table("nat", &ports)],
    };
    for rules in transactions {
        time += run("iptables-restore", RESTORE, &rules)?;
    }
    Ok(time)
}

/// Undoes [`add`]. Answers with the time.
pub(crate) fn del(pod: &Pod) -> Result<Duration> {
    Ok(link_del(pod)? + run("iptables-restore", RESTORE, &removal(pod))?)
}

/// Deletes a pod's interface, whoever made it.
pub(crate) fn link_del(pod: &Pod) -> Result<Duration> {
    run("ip", &["-netns", &pod.id, "-batch", "-"], "link delete eth0\n")
}

fn run(program: &str, args: &[&str], input: &str) -> Result<Duration> {
    let (time, status, _) = timed(Command::new(program).args(args), input)?;
    if status != 0 {
        bail!("{program} {} exits with {status} for {input}", args.join(" "));
    }
    Ok(time)
}

/// What removes a container's rules.
fn removal(pod: &Pod) -> String {
    let (masq, dnat) = (masquerade_chain(pod), port_chain(pod));
    let chains = format!("-F {masq}\n-F {dnat}\n-X {masq}\n-X {dnat}\n");
    table("filter", &firewall(pod, "-D"))
        + &table("nat", &(source_jump(pod, "-D") + &port_jumps(pod, "-D") + &chains))
}

/// What firewall writes for one container, or its removal.
fn firewall(pod: &Pod, op: &str) -> String {
    let address = address(pod);
    format!(
        "{op} CNI-FORWARD -d {address}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         {op} CNI-FORWARD -s {address}/32 -j ACCEPT\n"
    )
}

/// What ipMasq writes for one container.
fn masquerade(pod: &Pod) -> String {
    let (masq, comment) = (masquerade_chain(pod), comment(pod));
    let chain = format!(
        ":{masq} - [0:0]\n\
         -A {masq} -d 172.26.64.0/20 -m comment --comment \"{comment}\" -j ACCEPT\n\
         -A {masq} ! -d 224.0.0.0/4 -m comment --comment \"{comment}\" -j MASQUERADE\n"
    );
    chain + &source_jump(pod, "-A")
}

/// What portmap writes for one container.
fn port_mappings(pod: &Pod) -> String {
    let (dnat, address) = (port_chain(pod), address(pod));
    let mut text = format!(":{dnat} - [0:0]\n");
    for port in pod.ports.as_array().into_iter().flatten() {
        text += &port_rules(port, &dnat, &address);
    }
    text + &port_jumps(pod, "-A")
}

/// The jump to a container's masquerading.
fn source_jump(pod: &Pod, op: &str) -> String {
    let (address, comment, masq) = (address(pod), comment(pod), masquerade_chain(pod));
    format!("{op} POSTROUTING -s {address}/32 -m comment --comment \"{comment}\" -j {masq}\n")
}

/// The jumps to a container's port mappings.
fn port_jumps(pod: &Pod, op: &str) -> String {
    let (comment, dnat) = (comment(pod), port_chain(pod));
    let mut text = String::new();
    for protocol in ["tcp", "udp"] {
        let _ = writeln!(
            text,
            "{op} CNI-HOSTPORT-DNAT -p {protocol} -m comment --comment \"dnat {comment}\" -m multiport --dports {} -j {dnat}",
            ports(pod, protocol)
        );
    }
    text
}

/// A table's part of what `iptables-restore` reads: a transaction of its own.
fn table(name: &str, lines: &str) -> String {
    format!("*{name}\n{lines}COMMIT\n")
}

fn port_rules(port: &Value, dnat: &str, address: &str) -> String {
    let word = |key: &str| port.get(key).map(|value| value.to_string().replace('"', "")).unwrap_or_default();
    let (protocol, number, host) = (word("protocol"), word("hostPort"), word("hostIP"));
    let matched = format!("-d {host}/32 -p {protocol} -m {protocol} --dport {number}");
    format!(
        "-A {dnat} -s 172.26.64.0/20 {matched} -j CNI-HOSTPORT-SETMARK\n\
         -A {dnat} -s 127.0.0.1/32 {matched} -j CNI-HOSTPORT-SETMARK\n\
         -A {dnat} {matched} -j DNAT --to-destination {address}:{}\n",
        word("containerPort")
    )
}

fn ports(pod: &Pod, protocol: &str) -> String {
    let all = pod.ports.as_array().into_iter().flatten();
    let of = all.filter(|port| port.get("protocol").is_some_and(|value| value == protocol));
    of.filter_map(|port| Some(port.get("hostPort")?.to_string())).collect::<Vec<_>>().join(",")
}

fn veth(pod: &Pod) -> String {
    format!("floor{}", pod.number)
}

fn comment(pod: &Pod) -> String {
    format!("name: \\\"nomad\\\" id: \\\"{}\\\"", pod.id)
}

fn masquerade_chain(pod: &Pod) -> String {
    format!("CNI-{:024x}", pod.number)
}

fn port_chain(pod: &Pod) -> String {
    format!("CNI-DN-{:021x}", pod.number)
}

/// From the upper half of the range, where no other container is.
fn address(pod: &Pod) -> String {
    format!("172.26.{}.{}", 72 + pod.number / 250, pod.number % 250 + 1)
}

/// What deleting the link of a container takes that cnibox attached, which waits for all processors.
pub(crate) const LINK: &str = "link";
const RESTORE: &[&str] = &["--noflush", "-w"];
