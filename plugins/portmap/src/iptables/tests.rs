// SPDX-License-Identifier: Apache-2.0
//! Layouts as text, rule by rule, and what contradicts them.

#![expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]

use std::fmt::Write;

use cnibox_netfilter::{AnyRule, TableRef};

use super::*;

fn config(mappings: Vec<Mapping>) -> Config {
    Config {
        backend: None,
        snat: true,
        masq_all: false,
        marking: Marking::Bit(0x2000),
        conditions_v4: Vec::new(),
        conditions_v6: Vec::new(),
        mappings,
        prev_result: None,
    }
}

fn mapping(protocol: Protocol, host_port: u16, host_ip: Option<&str>) -> Mapping {
    Mapping {
        host_port,
        container_port: 80,
        protocol,
        protocol_text: protocol.name().to_owned(),
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
    }
}

fn owner() -> Owner {
    Owner { network: "mynet".into(), container: "cont1".into() }
}

fn layout(config: &Config, address: &str) -> Layout {
    Layout::new(config, &owner(), address.parse().unwrap())
}

/// The rules of a layout as the words of the iptables command line.
fn text(layout: &Layout) -> String {
    let mut text = String::new();
    for placed in &layout.shared {
        let flag = if placed.at == Position::Head { "-I" } else { "-A" };
        writeln!(text, "{flag} {} {}", placed.chain, placed.rule.to_args().join(" ")).unwrap();
    }
    for rule in &layout.own {
        writeln!(text, "-A {} {}", layout.chain, rule.to_args().join(" ")).unwrap();
    }
    for rule in &layout.entries {
        writeln!(text, "-A {TOP} {}", rule.to_args().join(" ")).unwrap();
    }
    text
}

#[track_caller]
fn golden(name: &str, actual: &str) {
    cnibox_testkit::golden(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR")), actual);
}

#[test]
fn one_port() {
    golden(
        "iptables-one-port",
        &text(&layout(&config(vec![mapping(Protocol::Tcp, 8080, None)]), "10.22.0.2/16")),
    );
}

#[test]
fn host_addresses_limit_mappings_but_not_entries() {
    let mappings = vec![
        mapping(Protocol::Tcp, 8080, Some("192.168.0.2")),
        mapping(Protocol::Tcp, 8081, Some("0.0.0.0")),
        mapping(Protocol::Udp, 8082, Some("2001:db8:a::1")),
        mapping(Protocol::Sctp, 8083, Some("::")),
        mapping(Protocol::Tcp, 8084, None),
    ];
    golden("iptables-host-addresses-v4", &text(&layout(&config(mappings.clone()), "10.0.0.2/24")));
    golden("iptables-host-addresses-v6", &text(&layout(&config(mappings), "2001:db8::2/64")));
}

#[test]
fn options_change_the_rules() {
    let tcp = || vec![mapping(Protocol::Tcp, 8080, None)];
    let all = Config { masq_all: true, ..config(tcp()) };
    golden(
        "iptables-masq-all",
        &(text(&layout(&all, "10.0.0.2/24")) + &text(&layout(&all, "2001:db8::2/64"))),
    );
    let without = Config { snat: false, ..config(tcp()) };
    golden("iptables-no-snat", &text(&layout(&without, "10.0.0.2/24")));
    let foreign = Config { marking: Marking::Chain("KUBE-MARK-MASQ".into()), ..config(tcp()) };
    golden("iptables-foreign-mark", &text(&layout(&foreign, "10.0.0.2/24")));
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let conditional = Config {
        conditions_v4: words(&["-s", "192.0.2.0/24"]),
        conditions_v6: words(&["!", "-d", "2001:db8::/64", "-m", "time", "--weekdays", "Mo"]),
        ..config(tcp())
    };
    let both = text(&layout(&conditional, "10.0.0.2/24")) + &text(&layout(&conditional, "2001:db8::2/64"));
    golden("iptables-conditions", &both);
}

#[test]
fn ports_are_grouped_by_protocol_and_by_fifteen() {
    let mut mappings: Vec<_> = (1..=31).map(|port| mapping(Protocol::Udp, port, None)).collect();
    mappings.push(mapping(Protocol::Tcp, 40, None));
    let upper = Mapping { protocol_text: "UDP".into(), ..mapping(Protocol::Udp, 50, None) };
    mappings.push(upper);
    let entries: Vec<_> = layout(&config(mappings), "10.0.0.2/24").entries;
    let sizes: Vec<_> = entries
        .iter()
        .map(|rule| match &rule.matches[1] {
            Match::DestinationPorts { protocol, ports } => (*protocol, ports.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    assert_eq!(sizes, [(udp, 1), (tcp, 1), (udp, 15), (udp, 15), (udp, 1)]);
}

#[test]
fn chains_come_before_the_rules_that_need_them() {
    let mut batch = Batch::new();
    layout(&config(vec![mapping(Protocol::Tcp, 8080, None)]), "10.22.0.2/16").install(&mut batch);
    let mut known: Vec<String> = BUILT_IN.map(str::to_owned).to_vec();
    for change in batch.changes() {
        assert_eq!(change.table, TableRef::Xt(Family::Ipv4, Table::Nat));
        match &change.op {
            cnibox_netfilter::Op::EnsureChain(chain) => known.push(chain.name.clone()),
            cnibox_netfilter::Op::EnsureRule { chain, rule, .. } => {
                let AnyRule::Xt(rule) = rule.rule() else { panic!("{rule:?}") };
                assert!(known.contains(chain), "{chain}");
                assert!(
                    rule.target.jump().is_none_or(|to| known.iter().any(|chain| chain == to)),
                    "{rule:?}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn rules_of_an_earlier_attempt_contradict() {
    let now = layout(&config(vec![mapping(Protocol::Tcp, 8080, None)]), "10.22.0.3/16");
    let before = layout(
        &config(vec![mapping(Protocol::Tcp, 8080, None), mapping(Protocol::Tcp, 8081, None)]),
        "10.22.0.2/16",
    );
    let contradicts = now.contradictions();
    let contradicting: Vec<_> = before.own.iter().map(&contradicts).collect();
    // The hairpin and localhost rules are the same for both: one subnet, one host.
    assert_eq!(contradicting, [false, false, true, false, false, false]);
    assert!(!now.own.iter().any(contradicts));
}

#[test]
fn removal_needs_no_ports() {
    let batch = remove(&owner(), Family::Ipv6);
    assert_eq!(batch.changes().len(), 2);
    assert!(format!("{batch:?}").contains("CNI-DN-c729ec77c46fa9b53d651"));
}
