// SPDX-License-Identifier: Apache-2.0
//! Encodings without a kernel.

use super::{Form, decode, encode};
use crate::netlink::expr::{self, Compare, Expr, Field};
use crate::netlink::tests::bytes;
use crate::xt::tests::{net, reference};
use crate::xt::{Family, Match, Rule, Target};
use ipnetwork::IpNetwork;

fn read(exprs: &[Expr<'_>], family: Family) -> Option<Rule> {
    decode(&expr::decode(&bytes(exprs)), family)
}

#[test]
fn both_forms_decode_to_the_rule() {
    let mut written = 0;
    for (line, rule) in reference() {
        for family in [Family::Ipv4, Family::Ipv6] {
            let Some(canon) = rule.clone().canon(family) else { continue };
            for form in [Form::Native, Form::Extension] {
                let exprs = encode(&canon, family, form);
                assert_eq!(read(&exprs, family).as_ref(), Some(&canon), "{line}");
            }
            written += 1;
        }
    }
    assert_eq!(written, 18);
}

/// `-d 10.22.0.0/15 -j ACCEPT`, captured from iptables 1.8.9 through the kernel.
#[test]
fn prefix_within_a_byte_is_masked() {
    let rule = Rule::new(vec![Match::destination(net("10.23.0.7/15"))], Target::Accept);
    let exprs = encode(&rule.canon(Family::Ipv4).unwrap(), Family::Ipv4, Form::Native);
    let [Expr::Compare(compare), Expr::Counter, Expr::Verdict(_)] = exprs.as_slice() else {
        panic!("{exprs:?}")
    };
    let field = Field::Payload { base: 1, offset: 16, len: 4 };
    let (mask, data) = (vec![255, 254, 0, 0], vec![10, 22, 0, 0]);
    assert_eq!(*compare, Compare { field, mask: Some(mask.into()), data: data.into(), negated: false });
}

#[test]
fn every_prefix_length_comes_back() {
    for prefix in 1..=128 {
        let address =
            IpNetwork::new("fd00:1234:5678:9abc:def0:1234:5678:9abc".parse().unwrap(), prefix).unwrap();
        let canon = Rule::new(vec![Match::source(address)], Target::Drop).canon(Family::Ipv6).unwrap();
        let exprs = encode(&canon, Family::Ipv6, Form::Native);
        assert_eq!(read(&exprs, Family::Ipv6), Some(canon));
    }
    assert_eq!(expr::network(&[10, 0, 1, 0], Some(&[255, 0, 255, 0]), true), None);
}
