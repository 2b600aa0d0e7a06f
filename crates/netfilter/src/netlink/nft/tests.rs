// SPDX-License-Identifier: Apache-2.0
//! Encodings without a kernel.

use super::{decode, encode};
use netlink_bindings::nftables::{PushExprAttrs, PushExprListAttrs};

use crate::netlink::expr::{self, Expr, REG_1};
use crate::netlink::tests::bytes;
use crate::nft::{CtState, Family, Protocol, Rule, Statement, Verdict};

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
        vec![port(Protocol::Sctp, 1), port(Protocol::Sctp, 2), Verdict::Return.into()],
        vec![Statement::in_interface("veth0"), Verdict::Jump("to".into()).into()],
        vec![
            Statement::OutInterface { name: "fifteen-letters".into(), negated: true },
            Verdict::Goto("to".into()).into(),
        ],
        vec![Statement::ether_source([2, 0, 0, 0, 0, 1]), Verdict::Drop.into()],
        vec![Statement::DestinationLocal, Verdict::Accept.into()],
        vec![Statement::Marked(0x2000), Statement::Masquerade],
        vec![port(Protocol::Tcp, 80), Statement::SetMark(0x2000)],
        vec![Statement::ConntrackState(CtState::ESTABLISHED | CtState::INVALID), Verdict::Drop.into()],
    ]
}

const REG_2: u32 = 2;

#[test]
fn what_is_written_is_read_back() {
    let mut written = 0;
    for statements in rules() {
        for family in [Family::Inet, Family::Ip, Family::Ip6, Family::Bridge] {
            let rule = Rule::new(statements.clone());
            let Some(canon) = rule.clone().canon(family) else { continue };
            let encoded = bytes(&encode(&rule, family));
            assert_eq!(decode(&expr::decode(&encoded), family), Some(canon.statements), "{family:?}");
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

/// One expression as the kernel has it.
fn raw(write: impl FnOnce(PushExprAttrs<PushExprListAttrs<&mut Vec<u8>>>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(PushExprListAttrs::new(&mut bytes).nested_elem());
    bytes
}

fn load(key: u32) -> Vec<u8> {
    raw(|element| drop(element.nested_data_meta().push_key(key).push_dreg(REG_1).end_nested().end_nested()))
}

fn payload(base: u32, offset: u32, len: u32) -> Vec<u8> {
    raw(|element| {
        let payload = element.nested_data_payload().push_dreg(REG_1).push_base(base);
        payload.push_offset(offset).push_len(len).end_nested().end_nested();
    })
}

fn bitwise(mask: &[u8], xor: &[u8]) -> Vec<u8> {
    raw(|element| {
        let bitwise = element.nested_data_bitwise().push_sreg(REG_1).push_dreg(REG_1);
        let bitwise = bitwise.nested_mask().push_value(mask).end_nested();
        bitwise.nested_xor().push_value(xor).end_nested().end_nested().end_nested();
    })
}

fn compare(sreg: u32, data: &[u8]) -> Vec<u8> {
    raw(|element| {
        let cmp = element.nested_data_cmp().push_sreg(sreg).push_op(0);
        cmp.nested_data().push_value(data).end_nested().end_nested().end_nested();
    })
}

fn set_mark(sreg: u32) -> Vec<u8> {
    bytes(&[Expr::SetMark { sreg }])
}

#[test]
fn more_than_the_dialect_says_is_not_read() {
    let change = |mask: u32, xor: u32| bitwise(&mask.to_ne_bytes(), &xor.to_ne_bytes());
    let (mark, iifname, l4proto) = (|| load(3), || load(6), || load(16));
    let port = || payload(2, 2, 2);
    for exprs in [
        vec![bytes(&[Expr::Other])],
        // a protocol by itself, twice, and a port without one
        vec![l4proto(), compare(REG_1, &[6])],
        vec![l4proto(), compare(REG_1, &[6]), l4proto(), compare(REG_1, &[17])],
        vec![port(), compare(REG_1, &[0, 80])],
        // another register, a mask, and names of many
        vec![iifname(), compare(REG_2, &[0; 16])],
        vec![iifname(), bitwise(&[0xff], &[0]), compare(REG_1, &[0; 16])],
        vec![iifname(), compare(REG_1, b"veth")],
        vec![iifname(), compare(REG_1, &[b'a'; 16])],
        vec![iifname(), compare(REG_1, &[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])],
        vec![compare(REG_1, &[1])],
        vec![iifname(), compare(REG_1, &[0; 16]), compare(REG_1, &[0; 16])],
        // a mark that is changed and not set, set and not changed, and one of which more is taken than given
        vec![mark(), change(!1, 1)],
        vec![mark(), change(!1, 1), set_mark(REG_2)],
        vec![mark(), set_mark(REG_1)],
        vec![mark(), change(!1, 0), set_mark(REG_1)],
        vec![mark(), change(!3, 1), set_mark(REG_1)],
        vec![mark(), change(!1, 1), compare(REG_1, &[1, 0, 0, 0])],
        vec![mark(), change(!1, 0), change(!1, 0), compare(REG_1, &[0; 4])],
        vec![iifname(), change(!1, 1), set_mark(REG_1)],
        vec![payload(1, 12, 40), compare(REG_1, &[0; 40])],
    ] {
        assert_eq!(decode(&expr::decode(&exprs.concat()), Family::Ip), None, "{exprs:?}");
    }
    let (set, whole) = ([mark(), change(!1, 1), set_mark(REG_1)], [iifname(), compare(REG_1, &[0; 16])]);
    for exprs in [set.as_slice(), whole.as_slice()] {
        assert_eq!(decode(&expr::decode(&exprs.concat()), Family::Ip).map(|read| read.len()), Some(1));
    }
}
