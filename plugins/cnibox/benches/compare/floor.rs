// SPDX-License-Identifier: Apache-2.0
//! The least that the usual tools need for the kernel objects of Nomad's chain: one `ip -batch` per namespace and one
//! `iptables-restore`. No addresses are managed and nothing is looked at, so no plugin can be expected to be faster.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::chain::{WHOLE, timed};
use crate::pod::Pod;
use crate::samples::Samples;

/// Attaches a pod to the bridge `nomad`, which must exist with the chains that all containers share.
pub(crate) fn add(pod: &Pod, samples: &mut Samples) -> Result<()> {
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
    let time = run("ip", &["-batch", "-"], &host)?
        + run("ip", &["-netns", id, "-batch", "-"], &inside)?
        + run("iptables-restore", RESTORE, &rules(pod, true))?;
    samples.note("ADD", WHOLE, time);
    Ok(())
}

/// Undoes [`add`].
pub(crate) fn del(pod: &Pod, samples: &mut Samples) -> Result<()> {
    let link = link_del(pod)?;
    samples.note("DEL", WHOLE, link + run("iptables-restore", RESTORE, &rules(pod, false))?);
    Ok(())
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

/// What firewall, ipMasq and portmap write for one container, or the removal of it.
fn rules(pod: &Pod, add: bool) -> String {
    let (address, masq, dnat) = (address(pod), format!("CNI-{:024x}", pod.number), chain(pod));
    let (op, comment) =
        (if add { "-A" } else { "-D" }, format!("name: \\\"nomad\\\" id: \\\"{}\\\"", pod.id));
    let mut text = format!(
        "*filter\n{op} CNI-FORWARD -d {address}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
         {op} CNI-FORWARD -s {address}/32 -j ACCEPT\nCOMMIT\n*nat\n"
    );
    if add {
        let _ = writeln!(text, ":{masq} - [0:0]\n:{dnat} - [0:0]");
        let _ = writeln!(text, "-A {masq} -d 172.26.64.0/20 -m comment --comment \"{comment}\" -j ACCEPT");
        let _ = writeln!(text, "-A {masq} ! -d 224.0.0.0/4 -m comment --comment \"{comment}\" -j MASQUERADE");
        for port in pod.ports.as_array().into_iter().flatten() {
            text += &port_rules(port, &dnat, &address);
        }
    }
    let _ = writeln!(text, "{op} POSTROUTING -s {address}/32 -m comment --comment \"{comment}\" -j {masq}");
    for protocol in ["tcp", "udp"] {
        let _ = writeln!(
            text,
            "{op} CNI-HOSTPORT-DNAT -p {protocol} -m comment --comment \"dnat {comment}\" -m multiport --dports {} -j {dnat}",
            ports(pod, protocol)
        );
    }
    if !add {
        let _ = writeln!(text, "-F {masq}\n-F {dnat}\n-X {masq}\n-X {dnat}");
    }
    text + "COMMIT\n"
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

fn chain(pod: &Pod) -> String {
    format!("CNI-DN-{:021x}", pod.number)
}

/// From the upper half of the range, where no other container is.
fn address(pod: &Pod) -> String {
    format!("172.26.{}.{}", 72 + pod.number / 250, pod.number % 250 + 1)
}

/// What deleting the link of a container takes that cnibox attached, which waits for all processors.
pub(crate) const LINK: &str = "link";
const RESTORE: &[&str] = &["--noflush", "-w"];
