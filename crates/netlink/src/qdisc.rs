// SPDX-License-Identifier: Apache-2.0
//! Traffic shaping: the few verbs of `tc qdisc` and `tc filter` that bandwidth limits need.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType,
    TcAttribute, TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption,
    TcU32Key, TcU32Selector, TcU32SelectorFlags,
};

use crate::error::unless;
use crate::sieve::attribute;
use crate::{Error, Rtnl};

/// A token bucket filter (`tc-tbf(8)`), in the kernel's units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tbf {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may wait.
    pub limit: u32,
    /// Burst, as the time in ticks (`/proc/net/psched`) that sending it takes at `rate`.
    pub buffer: u32,
}

impl Rtnl {
    /// `tc qdisc add dev INDEX root handle 1: tbf rate R limit L burst B`.
    ///
    /// # Errors
    /// [`Error::is_exists`] if a root discipline was added before, or what else the kernel says.
    pub fn qdisc_add_tbf(&mut self, index: u32, tbf: Tbf) -> Result<(), Error> {
        let mut message = about(index);
        message.header.parent = TcHandle::ROOT;
        message.header.handle = TcHandle { major: 1, minor: 0 };
        message.attributes = vec![TcAttribute::Kind(TBF.to_owned()), TcAttribute::Options(tbf.options())];
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `tc qdisc add dev INDEX ingress`.
    ///
    /// # Errors
    /// [`Error::is_exists`], or what else the kernel says.
    pub fn qdisc_add_ingress(&mut self, index: u32) -> Result<(), Error> {
        let mut message = about(index);
        message.header.parent = TcHandle::INGRESS;
        message.header.handle = INGRESS;
        message.attributes = vec![TcAttribute::Kind("ingress".to_owned())];
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `tc qdisc del dev INDEX root|ingress`, filters included. The kernel puts its default in a root's place.
    ///
    /// # Errors
    /// What else the kernel says.
    pub fn qdisc_del_if_present(&mut self, index: u32, ingress: bool) -> Result<(), Error> {
        let mut message = about(index);
        message.header.parent = if ingress { TcHandle::INGRESS } else { TcHandle::ROOT };
        let done = self.change(RouteNetlinkMessage::DelQueueDiscipline(message), 0);
        // ENODEV: the link is gone; EINVAL: no ingress discipline; ENOENT: the default one, which stays.
        let is_absence =
            |error: &Error| matches!(error.errno(), Some(libc::ENODEV | libc::EINVAL | libc::ENOENT));
        unless(done, is_absence).map(drop)
    }

    /// `tc filter add dev INDEX parent ffff: pref 1 protocol all u32 match u32 0 0 flowid 1:1 action mirred egress
    /// redirect dev TARGET`: everything that comes in by a link with an ingress discipline goes out by another.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn filter_add_redirect(&mut self, index: u32, target: u32) -> Result<(), Error> {
        let mut message = about(index);
        message.header.parent = INGRESS;
        // Priority 1; the protocol is in network byte order.
        message.header.info = u32::from(TcHandle { major: 1, minor: ETH_P_ALL.to_be() });
        let options = [
            TcFilterU32Option::ClassId(TcHandle { major: 1, minor: 1 }),
            TcFilterU32Option::Selector(everything()),
            TcFilterU32Option::Action(vec![redirect(target)]),
        ];
        message.attributes = vec![
            TcAttribute::Kind(TcFilterU32::KIND.to_owned()),
            TcAttribute::Options(options.into_iter().map(TcOption::U32).collect()),
        ];
        self.change(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// `tc qdisc show dev INDEX root`: the token bucket filter of a link, if that is its root discipline.
    ///
    /// # Errors
    /// What the kernel says; a link without any discipline is no error.
    pub fn qdisc_root_tbf(&mut self, index: u32) -> Result<Option<Tbf>, Error> {
        let mut message = about(index);
        message.header.parent = TcHandle::ROOT;
        // Before Linux 5.x the answer went to those who listen only; NLM_F_ECHO asks for a copy.
        let answer = self.ask_with(RouteNetlinkMessage::GetQueueDiscipline(message), NLM_F_ECHO);
        match unless(answer, |error| error.errno() == Some(libc::ENOENT))? {
            Some(RouteNetlinkMessage::NewQueueDiscipline(message)) => Ok(Tbf::decode(&message)),
            Some(_) => Err(Error::NoAnswer),
            None => Ok(None),
        }
    }
}

impl Tbf {
    /// `TCA_TBF_PARMS` and, for rates that need it, `TCA_TBF_RATE64`; `netlink-packet-route` has no tbf.
    fn options(self) -> Vec<TcOption> {
        let mut parms = vec![0; TBF_QOPT];
        put(&mut parms, RATE_AT, u32::try_from(self.rate).unwrap_or(u32::MAX));
        put(&mut parms, LIMIT_AT, self.limit);
        put(&mut parms, BUFFER_AT, self.buffer);
        let mut options = vec![DefaultNla::new(TCA_TBF_PARMS, parms)];
        if u32::try_from(self.rate).is_err() {
            options.push(DefaultNla::new(TCA_TBF_RATE64, self.rate.to_ne_bytes().to_vec()));
        }
        options.into_iter().map(TcOption::Other).collect()
    }

    /// `None` for other disciplines.
    pub(crate) fn decode(message: &TcMessage) -> Option<Self> {
        let is_tbf = message.attributes.iter().any(|a| matches!(a, TcAttribute::Kind(kind) if kind == TBF));
        let options = message.attributes.iter().find_map(options).filter(|_| is_tbf)?;
        let mut raw = vec![0; options.value_len()];
        options.emit_value(&mut raw);
        let parms = attribute(&raw, TCA_TBF_PARMS)?;
        let rate64 = attribute(&raw, TCA_TBF_RATE64).and_then(|raw| raw.first_chunk().copied());
        Some(Self {
            rate: rate64.map(u64::from_ne_bytes).or(take(parms, RATE_AT).map(u64::from))?,
            limit: take(parms, LIMIT_AT)?,
            buffer: take(parms, BUFFER_AT)?,
        })
    }
}

/// The options of a discipline that `netlink-packet-route` does not know: one attribute with all of them inside.
fn options(attribute: &TcAttribute) -> Option<&DefaultNla> {
    let TcAttribute::Options(options) = attribute else {
        return None;
    };
    options.iter().find_map(|option| if let TcOption::Other(raw) = option { Some(raw) } else { None })
}

fn about(index: u32) -> TcMessage {
    // The kernel counts indexes with a sign, and never gives out negative ones.
    TcMessage::with_index(i32::try_from(index).unwrap_or(0))
}

/// `match u32 0 0`.
fn everything() -> TcU32Selector {
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    selector
}

fn redirect(target: u32) -> TcAction {
    let mut mirror = TcMirror::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = target;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror))]),
    ];
    action
}

fn put(buffer: &mut [u8], at: usize, value: u32) {
    if let Some(place) = buffer.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn take(buffer: &[u8], at: usize) -> Option<u32> {
    buffer.get(at..)?.first_chunk().map(|raw| u32::from_ne_bytes(*raw))
}

const TBF: &str = "tbf";
const INGRESS: TcHandle = TcHandle { major: 0xffff, minor: 0 };
const ETH_P_ALL: u16 = 3;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;

/// `struct tc_tbf_qopt` of `linux/pkt_sched.h`: two `tc_ratespec` of 12 bytes (the rate is their last member), limit,
/// buffer, mtu.
const TBF_QOPT: usize = 36;
const RATE_AT: usize = 8;
const LIMIT_AT: usize = 24;
const BUFFER_AT: usize = 28;

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives is one attribute with all options inside.
    fn answered(tbf: Tbf) -> TcMessage {
        let mut raw = Vec::new();
        for option in tbf.options() {
            let mut one = vec![0; netlink_packet_core::Emitable::buffer_len(&option)];
            netlink_packet_core::Emitable::emit(&option, &mut one);
            raw.extend(one);
        }
        let mut message = about(3);
        message.attributes = vec![
            TcAttribute::Kind(TBF.to_owned()),
            TcAttribute::Options(vec![TcOption::Other(DefaultNla::new(2, raw))]),
        ];
        message
    }

    #[test]
    fn rates_beyond_32_bits_survive() {
        for rate in [1, 125_000, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 50_000_000_000] {
            let tbf = Tbf { rate, limit: 4711, buffer: 42 };
            assert_eq!(Tbf::decode(&answered(tbf)), Some(tbf));
        }
    }

    #[test]
    fn other_disciplines_are_not_taken_for_a_tbf() {
        let mut message = answered(Tbf { rate: 1, limit: 1, buffer: 1 });
        message.attributes[0] = TcAttribute::Kind("fq".to_owned());
        assert_eq!(Tbf::decode(&message), None);
        message.attributes = vec![TcAttribute::Kind(TBF.to_owned())];
        assert_eq!(Tbf::decode(&message), None);
    }
}
