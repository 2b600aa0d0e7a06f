// SPDX-License-Identifier: Apache-2.0
//! Layouts as nft commands.

#![expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use cnibox_netfilter::nft::Protocol;
use cnibox_netfilter::{AnyRule, Change, Op, Wanted};

use super::*;
use crate::config::{Mapping, Marking};

fn config() -> Config {
    let mapping = |protocol: Protocol, host_port, container_port, host_ip: Option<&str>| Mapping {
        host_port,
        container_port,
        protocol,
        protocol_text: protocol.name().to_owned(),
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
    };
    Config {
        backend: Some(crate::Backend::Nftables),
        snat: true,
        masq_all: false,
        marking: Marking::Bit(0x2000),
        conditions_v4: Vec::new(),
        conditions_v6: Vec::new(),
        mappings: vec![
            mapping(Protocol::Tcp, 8080, 80, None),
            mapping(Protocol::Udp, 8081, 80, None),
            mapping(Protocol::Udp, 8080, 81, Some("192.168.0.2")),
            mapping(Protocol::Udp, 8083, 80, Some("2001:db8:a::1")),
            mapping(Protocol::Tcp, 8084, 80, Some("0.0.0.0")),
            mapping(Protocol::Sctp, 8085, 80, Some("::")),
        ],
        prev_result: None,
    }
}

fn layout(config: &Config, address: &str) -> Layout {
    let owner = Owner { network: "test".into(), container: "icee6giejonei6so".into() };
    Layout::new(config, &owner, address.parse().unwrap())
}

fn commands(layout: &Layout) -> String {
    let mut batch = Batch::new();
    layout.install(&mut batch);
    let mut text = String::new();
    for change in batch.changes() {
        let Change { table: table @ TableRef::Nft(..), op } = change else { panic!("{change:?}") };
        match op {
            Op::EnsureTable { comment } => writeln!(text, "add table {table} {comment:?}"),
            Op::EnsureChain(chain) => match chain.hook {
                None => writeln!(text, "add chain {table} {}", chain.name),
                Some(hook) => {
                    let (kind, point) = (hook.chain_type.name(), hook.point.name());
                    writeln!(
                        text,
                        "add chain {table} {} type {kind} hook {point} priority {}",
                        chain.name, hook.priority
                    )
                }
            },
            Op::FlushChain(chain) => writeln!(text, "flush chain {table} {chain}"),
            Op::AppendRule { chain, rule } => {
                writeln!(text, "add rule {table} {chain} {}", rule_text(rule))
            }
            Op::EnsureRule { chain, rule, at } => {
                let place = if *at == Position::Head { "first " } else { "" };
                writeln!(text, "ensure {place}rule {table} {chain} {}", rule_text(rule))
            }
            other => panic!("{other:?}"),
        }
        .unwrap();
    }
    text
}

fn rule_text(wanted: &Wanted) -> String {
    let AnyRule::Nft(rule) = wanted.rule() else { panic!("{wanted:?}") };
    rule.to_text().unwrap()
}

#[track_caller]
fn golden(name: &str, actual: &str) {
    cnibox_testkit::golden(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR")), actual);
}

#[test]
fn both_families() {
    golden("nftables-v4", &commands(&layout(&config(), "10.0.0.2/24")));
    golden("nftables-v6", &commands(&layout(&config(), "2001:db8::2/64")));
}

#[test]
fn in_place_of_iptables_the_whole_subnet_is_let_through() {
    let config = Config { backend: None, ..config() };
    golden("nftables-in-place-of-iptables-v4", &commands(&layout(&config, "10.0.0.2/24")));
    golden("nftables-in-place-of-iptables-v6", &commands(&layout(&config, "2001:db8::2/64")));
    let all = commands(&layout(&Config { masq_all: true, ..config }, "10.0.0.2/24"));
    assert!(all.contains("ip saddr == 0.0.0.0/0") && !all.contains("127.0.0.1"), "{all}");
}

#[test]
fn without_masquerade_there_is_no_chain_for_it() {
    let config = Config { snat: false, ..config() };
    assert!(!commands(&layout(&config, "10.0.0.2/24")).contains("masquerading"));
}

#[test]
fn conditions_stand_before_the_jump() {
    let conditions_v4 = ["ip", "daddr", "192.0.2.1"].map(str::to_owned).to_vec();
    let config = Config { conditions_v4, ..config() };
    let text = commands(&layout(&config, "10.0.0.2/24"));
    let expected = "add rule ip cni_hostport prerouting ip daddr == 192.0.2.1/32 fib daddr type local jump hostports_all";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn notes_count_rules() {
    let notes = notes(&[layout(&config(), "10.0.0.2/24"), layout(&config(), "2001:db8::2/64")]);
    assert_eq!((noted(&notes, Family::Ipv4), noted(&notes, Family::Ipv6)), (4, 4));
    assert_eq!(noted(&[], Family::Ipv4), 0);
}

/// The shortest of three times that it takes to write down the changes for so many mappings, so many times.
fn time_of(mappings: u16, times: u16) -> Duration {
    let mapping = |port| Mapping {
        host_port: port,
        container_port: port,
        protocol: Protocol::Tcp,
        protocol_text: "tcp".to_owned(),
        host_ip: None,
    };
    let layout =
        layout(&Config { mappings: (1..=mappings).map(mapping).collect(), ..config() }, "10.0.0.2/24");
    let once = || {
        let (mut batches, started) = (Vec::new(), Instant::now());
        for _ in 0..times {
            let mut batch = Batch::new();
            layout.install(&mut batch);
            batches.push(batch);
        }
        started.elapsed()
    };
    [once(), once(), once()].into_iter().min().unwrap_or_default()
}

#[test]
fn many_mappings_take_their_proportion() {
    let (apart, together) = (time_of(1_000, 20), time_of(20_000, 1));
    // As many rules, and as much memory. Compared with one another, twenty times as long.
    assert!(together < 6 * apart, "{together:?} for 20,000 at once, {apart:?} for 20 times 1,000");
}
