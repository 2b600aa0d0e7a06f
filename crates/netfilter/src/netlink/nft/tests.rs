// SPDX-License-Identifier: Apache-2.0
//! Encodings without a kernel.

use super::{decode, encode};
use crate::netlink::expr::{CMP_EQ, Expr, REG_1, REG_2, base, meta};
use crate::nft::{CtState, Family, Protocol, Rule, Statement};

fn net(text: &str) -> ipnetwork::IpNetwork {
    text.parse().unwrap()
}

fn rules() -> Vec<Vec<Statement>> {
    let port = |protocol, port| Statement::destination_port(protocol, port);
    vec![
        vec![],
        vec![Statement::source(net("10.22.0.2")), Statement::not_destination(net("10.22.0.0/16"))],
        vec![
            Statement::source(net("fd00::2")),
            Statement::destination(net("fd00::/7")),
            Statement::Masquerade,
        ],
        vec![Statement::source(net("0.0.0.0/0")), Statement::Counter, Statement::Masquerade],
        vec![port(Protocol::Tcp, 80), Statement::Dnat("10.22.0.2:80".parse().unwrap())],
        vec![port(Protocol::Udp, 53), Statement::Dnat("[fd00::2]:53".parse().unwrap())],
        vec![port(Protocol::Sctp, 1), port(Protocol::Sctp, 2), Statement::Return],
        vec![Statement::in_interface("veth0"), Statement::Jump("to".into())],
        vec![
            Statement::OutInterface { name: "fifteen-letters".into(), negated: true },
            Statement::Goto("to".into()),
        ],
        vec![Statement::ether_source([2, 0, 0, 0, 0, 1]), Statement::Drop],
        vec![Statement::DestinationLocal, Statement::Accept],
        vec![Statement::Marked(0x2000), Statement::Masquerade],
        vec![port(Protocol::Tcp, 80), Statement::SetMark(0x2000)],
        vec![Statement::ConntrackState(CtState::ESTABLISHED | CtState::INVALID), Statement::Drop],
    ]
}

#[test]
fn what_is_written_is_read_back() {
    let mut written = 0;
    for statements in rules() {
        for family in [Family::Inet, Family::Ip, Family::Ip6, Family::Bridge] {
            let rule = Rule::new(statements.clone());
            let Some(canon) = rule.canon(family) else { continue };
            assert_eq!(decode(&encode(&rule, family), family), Some(canon.statements), "{family:?}");
            written += 1;
        }
    }
    assert_eq!(written, 41);
}

#[test]
fn what_does_not_fit_the_family_has_no_canonical_form() {
    for (statement, family) in [
        (Statement::source(net("10.0.0.1")), Family::Ip6),
        (Statement::source(net("fd00::1")), Family::Bridge),
        (Statement::ether_source([0; 6]), Family::Inet),
        (Statement::Dnat("10.0.0.1:1".parse().unwrap()), Family::Inet),
        (Statement::in_interface("sixteen-letters-"), Family::Ip),
        (Statement::Raw(vec!["x".into()]), Family::Ip),
    ] {
        assert_eq!(Rule::new(vec![statement]).canon(family), None);
    }
}

#[test]
fn more_than_the_dialect_says_is_not_read() {
    let compare = |sreg, data: &[u8]| Expr::Cmp { sreg, op: CMP_EQ, data: data.to_vec().into() };
    let load = |key| Expr::Meta { key, dreg: REG_1 };
    let port = || Expr::Payload { base: base::TRANSPORT, offset: 2, len: 2, dreg: REG_1 };
    let mask = || Expr::Bitwise { sreg: REG_1, dreg: REG_1, mask: vec![0xff].into(), xor: vec![0].into() };
    for exprs in [
        vec![Expr::Other],
        // a protocol by itself, twice, and a port without one
        vec![load(meta::L4PROTO), compare(REG_1, &[6])],
        vec![load(meta::L4PROTO), compare(REG_1, &[6]), load(meta::L4PROTO), compare(REG_1, &[17])],
        vec![port(), compare(REG_1, &[0, 80])],
        // another register, a mask, and names of many
        vec![load(meta::IIFNAME), compare(REG_2, &[b'a'; 16])],
        vec![load(meta::IIFNAME), mask(), compare(REG_1, &[0; 16])],
        vec![load(meta::IIFNAME), compare(REG_1, b"veth")],
        vec![load(meta::IIFNAME), compare(REG_1, &[b'a'; 16])],
        vec![load(meta::IIFNAME), compare(REG_1, &[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])],
        vec![compare(REG_1, &[1])],
        // a mark that is changed and not set, and one of which more is taken than given
        vec![load(meta::MARK), Expr::bitwise(!1, 1)],
        vec![load(meta::MARK), Expr::bitwise(!3, 1), Expr::SetMeta { key: meta::MARK, sreg: REG_1 }],
        vec![load(meta::MARK), Expr::bitwise(!1, 1), compare(REG_1, &[1, 0, 0, 0])],
        vec![
            Expr::Payload { base: base::NETWORK, offset: 12, len: 40, dreg: REG_1 },
            compare(REG_1, &[0; 40]),
        ],
    ] {
        assert_eq!(decode(&exprs, Family::Ip), None, "{exprs:?}");
    }
}
