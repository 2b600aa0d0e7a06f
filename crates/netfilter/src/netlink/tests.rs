// SPDX-License-Identifier: Apache-2.0
//! Bytes of others: whatever they are, reading them ends, and what cannot be read is foreign.

use netlink_bindings::nftables::PushExprListAttrs;

use super::expr::{self, Expr};
use super::listing::handle;
use super::message::{Messages, NewRule, read_comment};
use super::socket::{Message, messages};
use super::xt::{Form, encode};
use super::{nft, xt};
use crate::nft::Family;
use crate::rule::TableRef;
use crate::xt::Table;
use crate::xt::tests::reference;

/// The messages that write the reference's rules.
fn written() -> Vec<Vec<u8>> {
    let table = TableRef::Xt(crate::xt::Family::Ipv4, Table::Nat);
    let rules = reference().into_iter().filter_map(|(_, rule)| rule.canon(crate::xt::Family::Ipv4));
    let message = |canon| {
        let exprs = encode(&canon, crate::xt::Family::Ipv4, Form::Extension);
        let mut messages = Messages::new(1);
        let rule = NewRule { exprs, compat: None, comment: Some("text"), at_head: false, echo: false };
        messages.new_rule(&table, "X", &rule);
        messages.into_bytes()
    };
    rules.map(message).collect()
}

/// The expressions as the kernel gets them.
pub(super) fn bytes(exprs: &[Expr<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    expr::push(PushExprListAttrs::new(&mut bytes), exprs);
    bytes
}

/// Everything that reads rules.
fn read(message: &Message<'_>) {
    let attrs = message.body.get(4..).unwrap_or_default();
    let _ = handle(message);
    for kind in 1..8 {
        let bytes = netlink_bindings::utils::find_attr(attrs, kind).unwrap_or_default();
        let exprs = expr::decode(bytes);
        let _ = xt::decode(&exprs, crate::xt::Family::Ipv4);
        let _ = xt::decode(&exprs, crate::xt::Family::Ipv6);
        let _ = nft::decode(&exprs, Family::Inet);
        let _ = read_comment(bytes);
    }
}

#[test]
fn any_bytes_are_read_to_an_end() {
    for message in written() {
        for at in 0..message.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = message.clone();
                changed[at] = byte;
                messages(&changed).for_each(|message| read(&message));
                messages(&changed[..at]).for_each(|message| read(&message));
            }
        }
    }
}

#[test]
fn comments_are_text_or_unreadable() {
    assert_eq!(read_comment(b"").ok(), Some(None));
    assert_eq!(read_comment(b"\x01\x02ab\x00\x03hi\0").ok(), Some(Some("hi")));
    for data in [b"\x00\x03\xff\xfe\0".as_slice(), b"\x00\xff\0", b"\x01\x09x"] {
        assert!(read_comment(data).is_err(), "{data:?}");
    }
}
