// SPDX-License-Identifier: Apache-2.0
//! Command lines and canonical forms.

use ipnetwork::IpNetwork;

use super::{CtState, Family, Match, Protocol, Rule, Target, rule_from_listing};

pub(crate) fn net(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

fn words(text: &str) -> Vec<String> {
    crate::tool::split_words(text)
}

/// Whether both are the same rule of the packet filter.
pub(crate) fn is_same(one: &Rule, other: &Rule) -> bool {
    [Family::Ipv4, Family::Ipv6].into_iter().any(|family| one.canonical(family) == other.canonical(family))
}

/// Rules as the reference plugins give them to iptables.
pub(crate) fn reference() -> Vec<(&'static str, Rule)> {
    let established = Match::ConntrackState(CtState::RELATED_ESTABLISHED);
    let dport = || Match::DestinationPort { protocol: Protocol::Tcp, port: 8080 };
    let dports = Match::DestinationPorts { protocol: Protocol::Udp, ports: vec![53, 54] };
    let local: std::net::IpAddr = "127.0.0.1".parse().unwrap();
    let jump = |chain: &str| Target::Jump(chain.to_owned());
    vec![
        (
            "-d 10.22.0.2/16 -m comment --comment \"name: \\\"mynet\\\" id: \\\"cont1\\\"\" -j ACCEPT",
            Rule::new(
                vec![
                    Match::destination(net("10.22.0.2/16")),
                    Match::comment("name: \"mynet\" id: \"cont1\""),
                ],
                Target::Accept,
            ),
        ),
        (
            "! -d 224.0.0.0/4 -j MASQUERADE",
            Rule::new(vec![Match::not_destination(net("224.0.0.0/4"))], Target::Masquerade),
        ),
        (
            "-d 10.77.0.1/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            Rule::new(vec![Match::destination(net("10.77.0.1/32")), established], Target::Accept),
        ),
        (
            "-p tcp --dport 8080 -s 127.0.0.1 -j CNI-HOSTPORT-SETMARK",
            Rule::new(vec![dport(), Match::source(local)], jump("CNI-HOSTPORT-SETMARK")),
        ),
        (
            "-p tcp --dport 8080 -j DNAT --to-destination 10.22.0.2:80",
            Rule::new(vec![dport()], Target::Dnat("10.22.0.2:80".parse().unwrap())),
        ),
        (
            "-p tcp --dport 8080 -j DNAT --to-destination [fd00::2]:80",
            Rule::new(vec![dport()], Target::Dnat("[fd00::2]:80".parse().unwrap())),
        ),
        (
            "-m comment --comment dnat -m multiport -p udp --destination-ports 53,54 -j CNI-DN",
            Rule::new(vec![Match::comment("dnat"), dports], jump("CNI-DN")),
        ),
        ("-m addrtype --dst-type LOCAL -j X", Rule::new(vec![Match::DestinationLocal], jump("X"))),
        (
            "-m mark --mark 0x2000/0x2000 -j MASQUERADE",
            Rule::new(vec![Match::mark(0x2000, 0x2000)], Target::Masquerade),
        ),
        (
            "-m comment --comment m -j MARK --set-xmark 0x2000/0x2000",
            Rule::new(vec![Match::comment("m")], Target::SetMark { value: 0x2000, mask: 0x2000 }),
        ),
        (
            "-i cni0 ! -o cni0 -j DROP",
            Rule::new(vec![Match::in_interface("cni0"), Match::not_out_interface("cni0")], Target::Drop),
        ),
        ("-j RETURN", Rule::new(vec![], Target::Return)),
    ]
}

#[test]
fn command_lines_are_those_of_the_reference() {
    for (line, rule) in reference() {
        assert_eq!(rule.to_args(), words(line));
    }
}

#[test]
fn listings_are_read_back() {
    for (listing, rule) in [
        (1, "! -d 224.0.0.0/4 -j MASQUERADE"),
        (2, "-d 10.77.0.1/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
        (3, "-s 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j CNI-HOSTPORT-SETMARK"),
        (4, "-p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.22.0.2:80"),
        (6, "-p udp -m comment --comment dnat -m multiport --dports 53,54 -j CNI-DN"),
        (10, "-i cni0 ! -o cni0 -j DROP"),
    ] {
        let read = rule_from_listing(&words(rule)).unwrap();
        assert!(is_same(&read, &reference()[listing].1), "{rule}");
    }
    for unknown in
        ["-m limit --limit 5/min -j RETURN", "-p tcp", "-j REJECT --reject-with icmp-port-unreachable"]
    {
        assert_eq!(rule_from_listing(&words(unknown)), None);
    }
}

#[test]
fn what_the_native_dialect_can_say_it_says() {
    let text = |matches, target| Rule::new(matches, target).native().map(|rule| rule.to_string());
    assert_eq!(
        text(
            vec![
                Match::destination(net("10.0.0.2/32")),
                Match::ConntrackState(CtState::RELATED_ESTABLISHED),
                Match::comment("why"),
            ],
            Target::Accept
        )
        .unwrap(),
        "ip daddr == 10.0.0.2/32 ct state related,established accept comment \"why\""
    );
    assert_eq!(
        text(vec![Match::in_interface("br0"), Match::not_out_interface("br0")], Target::Jump("to".into()))
            .unwrap(),
        "iifname == \"br0\" oifname != \"br0\" jump to"
    );
    assert_eq!(
        text(vec![Match::mark(1, 1)], Target::SetMark { value: 0x2000, mask: 0x2000 }).unwrap(),
        "meta mark & 0x00000001 == 0x00000001 meta mark set meta mark | 0x00002000"
    );
    for matches in [vec![Match::in_interface("br+")], vec![Match::mark(1, 3)], vec![Match::Raw(vec![])]] {
        assert_eq!(text(matches, Target::Drop), None);
    }
    assert_eq!(text(vec![], Target::SetMark { value: 1, mask: 3 }), None);
}

#[test]
fn what_the_packet_filter_cannot_hold_is_left_to_the_tool() {
    let fits = |matches, target| {
        let rule = Rule::new(matches, target);
        [Family::Ipv4, Family::Ipv6].map(|family| rule.clone().canon(family).is_some())
    };
    assert_eq!(fits(vec![Match::source(net("10.0.0.1/32"))], Target::Accept), [true, false]);
    assert_eq!(fits(vec![], Target::Dnat("[fd00::2]:80".parse().unwrap())), [false, true]);
    assert_eq!(fits(vec![Match::in_interface("eth+")], Target::Drop), [true; 2]);
    for name in ["+", "", "sixteen-letters-", "a b", "a/b"] {
        assert_eq!(fits(vec![Match::out_interface(name)], Target::Drop), [false; 2], "{name}");
    }
    let ports = |count| vec![Match::DestinationPorts { protocol: Protocol::Tcp, ports: vec![80; count] }];
    assert_eq!([0, 15, 16].map(|count| fits(ports(count), Target::Drop)[0]), [false, true, false]);
    let comment = |len| vec![Match::comment("x".repeat(len))];
    assert_eq!([255, 256].map(|len| fits(comment(len), Target::Drop)[0]), [true, false]);
}

#[test]
fn rules_are_shown_as_command_lines() {
    let rule =
        Rule::new(vec![Match::comment("a \"b\""), Match::in_interface("eth0")], Target::Jump("X".into()));
    assert_eq!(rule.to_string(), r#"-m comment --comment "a \"b\"" -i eth0 -j X"#);
    assert_eq!(rule.canonical(Family::Ipv4).to_string(), r#"-i eth0 -m comment --comment "a \"b\"" -j X"#);
}

#[test]
fn order_counts_only_where_iptables_counts_it() {
    let (source, comment) = (|| Match::source(net("10.0.0.1/32")), || Match::comment("x"));
    let rule = |matches| Rule::new(matches, Target::Accept);
    assert!(is_same(&rule(vec![source(), comment()]), &rule(vec![comment(), source()])));
    assert!(!is_same(
        &rule(vec![comment(), Match::DestinationLocal]),
        &rule(vec![Match::DestinationLocal, comment()])
    ));
    assert!(is_same(&rule(vec![]), &rule(vec![Match::source(net("0.0.0.0/0"))])));
    assert!(!is_same(&rule(vec![source()]), &rule(vec![Match::destination(net("10.0.0.1/32"))])));
}

#[test]
fn simple_conditions_are_understood_and_others_kept() {
    let conditions = |text: &str| Match::conditions(&words(text));
    assert_eq!(conditions(""), []);
    assert_eq!(
        conditions("! -s 10.0.0.0/8 -d 1.2.3.4 -i eth0"),
        [
            Match::Source { address: net("10.0.0.0/8").into(), negated: true },
            Match::destination("1.2.3.4".parse::<std::net::IpAddr>().unwrap()),
            Match::in_interface("eth0"),
        ]
    );
    assert_eq!(
        conditions("-m mark ! --mark 0x1/0xff"),
        [Match::Mark { value: 1, mask: 0xff, negated: true }]
    );
    for raw in [
        "-m limit --limit 1/s",
        "-s host.example",
        "-s 10.0.0.1,10.0.0.2",
        "-m mark --mark 010",
        "! -m comment --comment x",
    ] {
        assert_eq!(conditions(raw), [Match::Raw(words(raw))]);
        assert_eq!(Rule::new(conditions(raw), Target::Drop).canon(Family::Ipv4), None);
    }
}

#[test]
fn protocols_are_named_as_iptables_names_them() {
    assert_eq!("TCP".parse(), Ok(Protocol::Tcp));
    let error = "foo".parse::<Protocol>().unwrap_err();
    assert_eq!(error.to_string(), "unknown protocol \"foo\" specified");
}

#[test]
fn every_protocol_has_its_name() {
    let protocols = std::iter::successors(Some(Protocol::Icmp), |protocol| match protocol {
        Protocol::Icmp => Some(Protocol::Tcp),
        Protocol::Tcp => Some(Protocol::Udp),
        Protocol::Udp => Some(Protocol::Dccp),
        Protocol::Dccp => Some(Protocol::Esp),
        Protocol::Esp => Some(Protocol::Ah),
        Protocol::Ah => Some(Protocol::Icmpv6),
        Protocol::Icmpv6 => Some(Protocol::Sctp),
        Protocol::Sctp => Some(Protocol::UdpLite),
        Protocol::UdpLite => None,
    });
    for protocol in protocols {
        assert_eq!(protocol.name().parse(), Ok(protocol));
    }
}
