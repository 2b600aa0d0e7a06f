// SPDX-License-Identifier: Apache-2.0
//! Every rule of the reference plugins in the iptables dialect, and one of every other form that the crate can write.

use std::net::SocketAddr;

use cnibox_netfilter::Family;
use cnibox_netfilter::xt::{Address, CtState, Match, Protocol, Rule, Table, Target};

/// A rule and where it belongs.
pub(crate) struct Case {
    pub(crate) family: Family,
    pub(crate) table: Table,
    pub(crate) chain: &'static str,
    pub(crate) rule: Rule,
}

/// Chains of the cases that are not built in.
pub(crate) const CHAINS: [(Table, &str); 10] = [
    (Table::Nat, "CNI-HOSTPORT-SETMARK"),
    (Table::Nat, "CNI-HOSTPORT-MASQ"),
    (Table::Nat, "CNI-c729ec77c46fa9b53d651af8"),
    (Table::Nat, "CNI-DN-c729ec77c46fa9b53d651"),
    (Table::Nat, "CNI-HOSTPORT-DNAT"),
    (Table::Filter, "CNI-ADMIN"),
    (Table::Filter, "CNI-FORWARD"),
    (Table::Filter, "CNI-ISOLATION-STAGE-2"),
    (Table::Filter, "CNI-ISOLATION-STAGE-1"),
    (Table::Filter, "MISC"),
];

pub(crate) fn all() -> Vec<Case> {
    [Family::Ipv4, Family::Ipv6].into_iter().flat_map(of_family).collect()
}

fn of_family(family: Family) -> Vec<Case> {
    let case = |(table, chain, rule)| Case { family, table, chain, rule };
    let groups = [masquerade(family), portmap(family), firewall(family), isolation(), others(family)];
    groups.into_iter().flatten().map(case).collect()
}

type Placed = (Table, &'static str, Rule);

fn pick<T>(family: Family, v4: T, v6: T) -> T {
    if family == Family::Ipv4 { v4 } else { v6 }
}

pub(crate) fn address(family: Family, v4: &str, v6: &str) -> Address {
    let text = pick(family, v4, v6);
    text.parse().map(Address::Host).unwrap_or_else(|_| Address::Net(text.parse().expect("address")))
}

fn jump(chain: &str) -> Target {
    Target::Jump(chain.to_owned())
}

fn masquerade(family: Family) -> Vec<Placed> {
    const OWN: &str = "CNI-c729ec77c46fa9b53d651af8";
    let comment = || Match::comment("name: \"mynet\" id: \"cont1\"");
    let net = Match::destination(address(family, "10.22.0.2/16", "fd00:1::2/64"));
    let multicast = Match::not_destination(address(family, "224.0.0.0/4", "ff00::/8"));
    let host = Match::source(address(family, "10.22.0.2/32", "fd00:1::2/128"));
    vec![
        (Table::Nat, OWN, Rule::new(vec![net, comment()], Target::Accept)),
        (Table::Nat, OWN, Rule::new(vec![multicast, comment()], Target::Masquerade)),
        (Table::Nat, "POSTROUTING", Rule::new(vec![host, comment()], jump(OWN))),
    ]
}

fn portmap(family: Family) -> Vec<Placed> {
    const OWN: &str = "CNI-DN-c729ec77c46fa9b53d651";
    let to: SocketAddr = pick(family, "10.22.0.2:80", "[fd00:1::2]:80").parse().expect("address");
    let dnat = |chain| Rule::new(vec![Match::DestinationLocal], jump(chain));
    let mut rules = vec![
        (Table::Nat, "CNI-HOSTPORT-SETMARK", set_mark(0x2000)),
        (Table::Nat, "CNI-HOSTPORT-MASQ", Rule::new(vec![Match::mark(0x2000, 0x2000)], Target::Masquerade)),
        (Table::Nat, "POSTROUTING", commented("CNI portfwd requiring masquerade", jump("CNI-HOSTPORT-MASQ"))),
        (Table::Nat, "PREROUTING", dnat("CNI-HOSTPORT-DNAT")),
        (Table::Nat, "OUTPUT", dnat("CNI-HOSTPORT-DNAT")),
    ];
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let port = || Match::DestinationPort { protocol, port: 8080 };
        let host_ip = || Match::destination(address(family, "192.0.2.1", "2001:db8::1"));
        for source in [("10.22.0.2/16", "fd00:1::2/64"), ("127.0.0.1", "::1"), ("0.0.0.0/0", "::/0")] {
            let source = || Match::source(address(family, source.0, source.1));
            rules.push((Table::Nat, OWN, Rule::new(vec![port(), source()], jump("CNI-HOSTPORT-SETMARK"))));
            rules.push((
                Table::Nat,
                OWN,
                Rule::new(vec![port(), host_ip(), source()], jump("CNI-HOSTPORT-SETMARK")),
            ));
        }
        rules.push((Table::Nat, OWN, Rule::new(vec![port()], Target::Dnat(to))));
        rules.push((Table::Nat, OWN, Rule::new(vec![port(), host_ip()], Target::Dnat(to))));
        let comment = Match::comment("dnat name: \"mynet\" id: \"cont1\"");
        let ports = Match::DestinationPorts { protocol, ports: (8080..8095).collect() };
        rules.push((Table::Nat, "CNI-HOSTPORT-DNAT", Rule::new(vec![comment.clone(), ports], jump(OWN))));
        let one = Match::DestinationPorts { protocol, ports: vec![8080] };
        let condition =
            Match::Source { address: address(family, "10.9.0.0/23", "fd00:9::/63"), negated: true };
        rules.push((Table::Nat, "CNI-HOSTPORT-DNAT", Rule::new(vec![comment, one, condition], jump(OWN))));
    }
    rules
}

fn set_mark(mark: u32) -> Rule {
    let comment = Match::comment("CNI portfwd masquerade mark");
    Rule::new(vec![comment], Target::SetMark { value: mark, mask: mark })
}

fn commented(text: &str, target: Target) -> Rule {
    Rule::new(vec![Match::comment(text)], target)
}

fn firewall(family: Family) -> Vec<Placed> {
    let host = || address(family, "10.22.0.2/32", "fd00:1::2/128");
    let established = Match::ConntrackState(CtState::RELATED_ESTABLISHED);
    vec![
        (Table::Filter, "FORWARD", commented("CNI firewall plugin rules", jump("CNI-FORWARD"))),
        (Table::Filter, "CNI-FORWARD", commented("CNI firewall plugin admin overrides", jump("CNI-ADMIN"))),
        (
            Table::Filter,
            "CNI-FORWARD",
            Rule::new(vec![Match::destination(host()), established], Target::Accept),
        ),
        (Table::Filter, "CNI-FORWARD", Rule::new(vec![Match::source(host())], Target::Accept)),
    ]
}

fn isolation() -> Vec<Placed> {
    const ONE: &str = "CNI-ISOLATION-STAGE-1";
    const TWO: &str = "CNI-ISOLATION-STAGE-2";
    let shared = || Match::comment("CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)");
    let policy = |name| Match::comment(format!("CNI firewall plugin rules (ingressPolicy: {name})"));
    let (input, output) = (|| Match::in_interface("cni0"), || Match::out_interface("cni0"));
    let not_output = Match::not_out_interface("cni0");
    vec![
        (Table::Filter, "FORWARD", Rule::new(vec![shared()], jump(ONE))),
        (Table::Filter, ONE, Rule::new(vec![input(), not_output, policy("same-bridge")], jump(TWO))),
        (Table::Filter, ONE, Rule::new(vec![input(), output(), policy("isolated")], Target::Drop)),
        (Table::Filter, ONE, Rule::new(vec![shared()], Target::Return)),
        (Table::Filter, TWO, Rule::new(vec![output(), shared()], Target::Drop)),
        (Table::Filter, TWO, Rule::new(vec![shared()], Target::Return)),
    ]
}

fn others(family: Family) -> Vec<Placed> {
    let icmp = pick(family, Protocol::Icmp, Protocol::Icmpv6);
    let comment = "x".repeat(255);
    let matches = vec![
        vec![],
        vec![Match::Comment(comment)],
        vec![Match::comment("back\\slash \"quote\" 'tick' $dollar `x`")],
        vec![Match::in_interface("eth+")],
        vec![Match::InInterface { name: "longestname1234".into(), negated: true }, Match::out_interface("a")],
        vec![Match::Protocol { protocol: icmp, negated: false }],
        vec![Match::Protocol { protocol: Protocol::Tcp, negated: true }],
        vec![
            Match::Protocol { protocol: Protocol::Sctp, negated: false },
            Match::source(address(family, "10.1.2.3", "fd00::7")),
        ],
        vec![Match::Mark { value: 1, mask: u32::MAX, negated: true }],
        vec![Match::mark(0x10, 0xff)],
        vec![Match::ConntrackState(CtState::NEW | CtState::INVALID)],
        vec![Match::source(address(family, "10.128.0.0/9", "8000::/1"))],
        vec![Match::source(address(family, "10.0.0.0/8", "fd00:1:2::/56"))],
        vec![Match::source(address(family, "10.1.2.2/31", "fd00::2/127"))],
    ];
    matches.into_iter().map(|matches| (Table::Filter, "MISC", Rule::new(matches, Target::Return))).collect()
}
