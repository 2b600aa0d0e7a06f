// SPDX-License-Identifier: Apache-2.0
//! nf_tables netlink messages: requests for one object, and the parts of a transaction.

use netlink_bindings::builtin::Nlmsghdr;
use netlink_bindings::nftables::{
    Nfgenmsg, OpBatchBeginDo, OpBatchEndDo, OpGetgenDo, OpGettableDo, OpNewtableDo, PushChainAttrs,
    PushRuleAttrs,
};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{align, push_header};

use super::expr::{self, Expr};
use super::socket::HEADER;
use crate::nft::{Chain, Family, Hook, Protocol};
use crate::rule::TableRef;

/// `NFNL_SUBSYS_NFTABLES << 8`
const NFTABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = NFTABLES;
const GET_TABLE: u16 = NFTABLES | 1;
pub(crate) const NEW_CHAIN: u16 = NFTABLES | 3;
const GET_CHAIN: u16 = NFTABLES | 4;
const DEL_CHAIN: u16 = NFTABLES | 5;
pub(crate) const NEW_RULE: u16 = NFTABLES | 6;
const GET_RULE: u16 = NFTABLES | 7;
const DEL_RULE: u16 = NFTABLES | 8;
pub(crate) const NEW_GEN: u16 = NFTABLES | 15;
const GET_GEN: u16 = NFTABLES | 16;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// Size of `struct nfgenmsg`, which stands before the attributes.
pub(crate) const NFGENMSG: usize = 4;

const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
/// `NLM_F_ECHO`
const ECHO: u16 = 8;
pub(crate) const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// `NFTA_CHAIN_USERDATA`; the generated encoder numbers it one too low.
const CHAIN_USERDATA: u16 = 12;

/// A rule to be written.
pub(crate) struct NewRule<'a> {
    pub(crate) exprs: Vec<Expr<'static>>,
    /// Protocol and whether it is negated, for xt matches that insist on one (`NFTA_RULE_COMPAT`).
    pub(crate) compat: Option<(Protocol, bool)>,
    pub(crate) comment: Option<&'a str>,
    pub(crate) at_head: bool,
    /// Whether the kernel is to send the rule back, which tells its handle.
    pub(crate) echo: bool,
}

/// Messages one behind the other, numbered from `first_seq`.
pub(crate) struct Messages {
    buffer: Vec<u8>,
    seq: u32,
}

impl Messages {
    pub(crate) fn new(first_seq: u32) -> Self {
        Self { buffer: Vec::with_capacity(4096), seq: first_seq }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.buffer
    }

    /// Appends a message whose body `write` encodes.
    pub(crate) fn push(&mut self, kind: u16, flags: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        self.buffer.resize(start + HEADER, 0);
        write(&mut self.buffer);
        align(&mut self.buffer);
        let len = u32::try_from(self.buffer.len() - start).unwrap_or(u32::MAX);
        let header = Nlmsghdr { len, r#type: kind, flags: REQUEST | flags, seq: self.seq, pid: 0 };
        if let Some(place) = self.buffer.get_mut(start..start + HEADER) {
            place.copy_from_slice(header.as_slice());
        }
        self.seq = self.seq.wrapping_add(1);
    }

    /// Opens a transaction that the kernel refuses with ERESTART unless the ruleset still is generation `generation`.
    pub(crate) fn begin(&mut self, generation: u32) {
        self.push(BATCH_BEGIN, 0, |buffer| {
            OpBatchBeginDo::encode_request(buffer, &batch_header()).push_genid(generation);
        });
    }

    pub(crate) fn end(&mut self) {
        self.push(BATCH_END, 0, |buffer| {
            OpBatchEndDo::encode_request(buffer, &batch_header());
        });
    }

    pub(crate) fn new_table(&mut self, table: &TableRef, comment: Option<&str>) {
        self.push(NEW_TABLE, CREATE, |buffer| {
            // without flags an existing table is left as it is
            let attrs = OpNewtableDo::encode_request(buffer, &header(table.family()));
            let attrs = attrs.push_name_bytes(table.name().as_bytes());
            if let Some(comment) = comment {
                attrs.push_userdata(&comment_data(comment));
            }
        });
    }

    pub(crate) fn new_chain(&mut self, table: &TableRef, chain: &Chain) {
        self.push(NEW_CHAIN, CREATE, |buffer| {
            let mut attrs = chain_attrs(buffer, table, &chain.name);
            if let Some(comment) = &chain.comment {
                let data = comment_data(comment);
                push_header(attrs.as_vec_mut(), CHAIN_USERDATA, u16::try_from(data.len()).unwrap_or(0));
                attrs.as_vec_mut().extend(data);
            }
            if let Some(Hook { chain_type, point, priority, says_accept }) = chain.hook {
                attrs = attrs.nested_hook().push_num(point.number()).push_priority(priority).end_nested();
                attrs = attrs.push_type_bytes(chain_type.name().as_bytes());
                if says_accept {
                    attrs.push_policy(libc::NF_ACCEPT.cast_unsigned());
                }
            }
        });
    }

    pub(crate) fn new_rule(&mut self, table: &TableRef, chain: &str, rule: &NewRule<'_>) {
        let place = if rule.at_head { 0 } else { APPEND };
        let echo = if rule.echo { ECHO } else { 0 };
        self.push(NEW_RULE, CREATE | place | echo, |buffer| {
            let attrs = rule_attrs(buffer, table, chain, None);
            let mut attrs = expr::push(attrs.nested_expressions(), &rule.exprs).end_nested();
            if let Some((protocol, negated)) = rule.compat {
                let compat = attrs.nested_compat().push_proto(protocol.number().into());
                attrs = compat.push_flags(if negated { 2 } else { 0 }).end_nested(); // NFT_RULE_COMPAT_F_INV
            }
            if let Some(comment) = rule.comment {
                attrs.push_userdata(&comment_data(comment));
            }
        });
    }

    /// Deletes one rule, or without handle all rules of the chain.
    pub(crate) fn delete_rule(&mut self, table: &TableRef, chain: &str, handle: Option<u64>) {
        self.push(DEL_RULE, 0, |buffer| drop(rule_attrs(buffer, table, chain, handle)));
    }

    /// Deletes a chain with its rules. The kernel answers EBUSY if other rules jump to it.
    pub(crate) fn delete_chain(&mut self, table: &TableRef, chain: &str) {
        self.push(DEL_CHAIN, 0, |buffer| drop(chain_attrs(buffer, table, chain)));
    }
}

/// Asks for one table by name.
pub(crate) fn get_table(seq: u32, table: &TableRef) -> Vec<u8> {
    single(seq, GET_TABLE, ACK, |buffer| {
        let attrs = OpGettableDo::encode_request(buffer, &header(table.family()));
        attrs.push_name_bytes(table.name().as_bytes());
    })
}

/// Asks for one chain by name.
pub(crate) fn get_chain(seq: u32, table: &TableRef, chain: &str) -> Vec<u8> {
    single(seq, GET_CHAIN, ACK, |buffer| drop(chain_attrs(buffer, table, chain)))
}

/// Asks for one rule of a chain, or without handle for all of them.
pub(crate) fn get_rules(seq: u32, table: &TableRef, chain: &str, handle: Option<u64>) -> Vec<u8> {
    let flags = if handle.is_some() { ACK } else { DUMP };
    single(seq, GET_RULE, flags, |buffer| drop(rule_attrs(buffer, table, chain, handle)))
}

/// Asks for the generation of the ruleset.
pub(crate) fn get_generation(seq: u32) -> Vec<u8> {
    single(seq, GET_GEN, ACK, |buffer| {
        OpGetgenDo::encode_request(buffer, &Nfgenmsg::new());
    })
}

/// One message by itself.
pub(crate) fn single(seq: u32, kind: u16, flags: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut messages = Messages::new(seq);
    messages.push(kind, flags, write);
    messages.into_bytes()
}

/// Begins a message about a chain.
fn chain_attrs<'b>(
    buffer: &'b mut Vec<u8>,
    table: &TableRef,
    chain: &str,
) -> PushChainAttrs<&'b mut Vec<u8>> {
    buffer.extend(header(table.family()).as_slice());
    let attrs = PushChainAttrs::new(buffer).push_table_bytes(table.name().as_bytes());
    attrs.push_name_bytes(chain.as_bytes())
}

/// Begins a message about a rule of a chain, or without handle about no certain one.
fn rule_attrs<'b>(
    buffer: &'b mut Vec<u8>,
    table: &TableRef,
    chain: &str,
    handle: Option<u64>,
) -> PushRuleAttrs<&'b mut Vec<u8>> {
    buffer.extend(header(table.family()).as_slice());
    let attrs = PushRuleAttrs::new(buffer).push_table_bytes(table.name().as_bytes());
    let attrs = attrs.push_chain_bytes(chain.as_bytes());
    match handle {
        Some(handle) => attrs.push_handle(handle),
        None => attrs,
    }
}

pub(crate) fn header(family: Family) -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.nfgen_family = family.number();
    header
}

fn batch_header() -> Nfgenmsg {
    let mut header = Nfgenmsg::new();
    header.set_res_id(NFTABLES >> 8);
    header
}

/// nft's user data: type 0 (comment, for tables, chains and rules alike), length, text with its zero byte (libnftnl
/// `include/libnftnl/udata.h`).
fn comment_data(comment: &str) -> Vec<u8> {
    let len = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
    [&[0, len], comment.as_bytes(), b"\0"].concat()
}

/// The comment in such user data, if there is one.
pub(crate) fn read_comment(mut data: &[u8]) -> Result<Option<&str>, Unreadable> {
    while let [kind, len, rest @ ..] = data {
        let (text, next) = rest.split_at_checked(usize::from(*len)).ok_or(Unreadable)?;
        if *kind == 0 {
            return expr::text(text).map(Some).ok_or(Unreadable);
        }
        data = next;
    }
    Ok(None)
}

/// User data of a form that is unknown here.
#[derive(Debug)]
pub(crate) struct Unreadable;
