// SPDX-License-Identifier: Apache-2.0
//! Existing rules, as netlink or the iptables tool lists them, and their comparison with wanted ones.

use std::borrow::Cow;

use super::AnyRule;
use crate::batch::{RuleId, RuleInfo};
use crate::kernel::expr::{self, Expr};
use crate::kernel::tables::RawRule;
use crate::nft::{self, Family};
use crate::xt::{self, Canon};

/// An existing rule.
#[derive(Debug, Clone)]
pub(crate) enum Listed {
    /// As nf_tables has it.
    Raw { rule: RawRule<'static>, family: Family },
    /// As `iptables -S` prints it, without `-A chain`, split into words.
    Words(Vec<String>),
}

impl Listed {
    pub(crate) fn id(&self) -> RuleId {
        match self {
            Self::Raw { rule, .. } => RuleId::Handle(rule.handle),
            Self::Words(words) => RuleId::Listed(words.clone()),
        }
    }

    pub(crate) fn comment(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Raw { rule, .. } => rule.comment().map(Cow::Borrowed).or_else(|| xt_comment(&rule.exprs)),
            Self::Words(words) => after(words, "--comment"),
        }
    }

    pub(crate) fn jump(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Raw { rule, .. } => expr::decode(&rule.exprs).find_map(Expr::into_jump),
            Self::Words(words) => after(words, "-j").or_else(|| after(words, "-g")),
        }
    }

    /// The rule in the iptables dialect, if nothing in it is unknown.
    fn canon(&self) -> Option<Canon> {
        match self {
            Self::Raw { rule, family } => canon(rule, *family),
            Self::Words(words) => Canon::of(&xt::rule_from_listing(words)?),
        }
    }

    pub(crate) fn info(&self) -> RuleInfo {
        let canon = self.canon();
        let plain =
            |slot: Option<&(ipnetwork::IpNetwork, bool)>| slot.filter(|slot| !slot.1).map(|slot| slot.0);
        RuleInfo {
            id: self.id(),
            comment: self.comment().map(Cow::into_owned),
            jump: self.jump().map(Cow::into_owned),
            source: plain(canon.as_ref().and_then(|canon| canon.source.as_ref())),
            destination: plain(canon.as_ref().and_then(|canon| canon.destination.as_ref())),
            xt: canon.and_then(|canon| canon.to_rule()),
        }
    }
}

/// A rule to be looked for, prepared for many comparisons.
pub(crate) struct Wanted {
    comment: Option<String>,
    canon: Option<Canon>,
    /// Without counters.
    exprs: Option<Vec<Expr<'static>>>,
    rule: AnyRule,
}

impl Wanted {
    pub(crate) fn new(rule: &AnyRule, family: Family) -> Self {
        let canon = match rule {
            AnyRule::Xt(rule) => Canon::of(rule),
            AnyRule::Nft(_) => None,
        };
        let mut exprs = match rule {
            AnyRule::Xt(_) => xt_family(family)
                .zip(canon.as_ref())
                .and_then(|(family, canon)| xt::encode(canon, family, xt::Form::Native)),
            AnyRule::Nft(rule) => nft::encode(rule, family),
        };
        if let Some(exprs) = &mut exprs {
            exprs.retain(|expr| !expr.is_counter());
        }
        let comment = match rule {
            AnyRule::Xt(_) => None,
            AnyRule::Nft(rule) => rule.comment.clone(),
        };
        Self { comment, canon, exprs, rule: rule.clone() }
    }

    /// The rule, if it is of the iptables dialect.
    pub(crate) fn xt(&self) -> Option<&xt::Rule> {
        match &self.rule {
            AnyRule::Xt(rule) => Some(rule),
            AnyRule::Nft(_) => None,
        }
    }

    /// True if only the tool can compare the rule.
    pub(crate) fn is_opaque(&self) -> bool {
        self.canon.is_none()
    }

    /// Rules that differ in the values they compare with are different; rules of another shape may still be the same in
    /// another tool version's encoding.
    pub(crate) fn is(&self, listed: &Listed) -> bool {
        match listed {
            Listed::Raw { rule, family } => self.is_raw(rule, *family),
            Listed::Words(_) => self.canon.is_some() && listed.canon() == self.canon,
        }
    }

    /// As [`Wanted::is`].
    pub(crate) fn is_raw(&self, rule: &RawRule<'_>, family: Family) -> bool {
        match self.compare(rule) {
            Comparison::Same => true,
            Comparison::Different => false,
            Comparison::OtherShape => self.canon.is_some() && canon(rule, family) == self.canon,
        }
    }

    fn compare(&self, rule: &RawRule<'_>) -> Comparison {
        let Some(exprs) = &self.exprs else { return Comparison::Different };
        let mut listed = expr::decode(&rule.exprs).filter(|expr| !expr.is_counter());
        for wanted in exprs {
            match listed.next() {
                Some(found) if found == *wanted => {}
                Some(found) if found.same_shape(wanted) => return Comparison::Different,
                Some(_) | None => return Comparison::OtherShape,
            }
        }
        match listed.next() {
            None if rule.comment() == self.comment.as_deref() => Comparison::Same,
            None => Comparison::Different,
            Some(_) => Comparison::OtherShape,
        }
    }
}

enum Comparison {
    Same,
    Different,
    OtherShape,
}

fn canon(rule: &RawRule<'_>, family: Family) -> Option<Canon> {
    let mut canon = xt::decode(expr::decode(&rule.exprs), xt_family(family)?)?;
    // iptables before 1.8.5 and ebtables keep comments as user data
    canon.extensions.extend(rule.comment().map(|text| xt::Extension::Comment(text.to_owned())));
    Some(canon)
}

fn xt_family(family: Family) -> Option<xt::Family> {
    match family {
        Family::Ip => Some(xt::Family::Ipv4),
        Family::Ip6 => Some(xt::Family::Ipv6),
        Family::Inet | Family::Bridge => None,
    }
}

fn xt_comment(exprs: &[u8]) -> Option<Cow<'_, str>> {
    expr::decode(exprs).find_map(|expr| {
        let Expr::Match { name, info: Cow::Borrowed(info), .. } = expr else { return None };
        (name == "comment").then(|| String::from_utf8_lossy(expr::cut_nul(info)))
    })
}

fn after<'a>(words: &'a [String], flag: &str) -> Option<Cow<'a, str>> {
    let position = words.iter().position(|word| word == flag)?;
    words.get(position + 1).map(|word| Cow::Borrowed(word.as_str()))
}
