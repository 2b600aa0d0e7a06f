// SPDX-License-Identifier: Apache-2.0
//! Where rules were put, so that they are found again without a listing of everybody else's. It must never know whether
//! they are still there.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::rule::{RuleId, TableRef};

/// A rule of the iptables dialect that an [`crate::Engine`] added: its chain and its nf_tables handle. What stands there
/// now may be another rule or none, so it is looked at before it is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    table: TableRef,
    chain: String,
    handle: u64,
}

impl Hint {
    /// How many an engine gives or follows for a chain: more lead there no faster than a listing.
    pub(crate) const MOST: usize = 64;

    pub(crate) fn new(table: &TableRef, chain: &str, handle: u64) -> Self {
        Self { table: table.clone(), chain: chain.to_owned(), handle }
    }

    /// The rule's identity, if it is one of this chain.
    pub(crate) fn within(&self, table: &TableRef, chain: &str) -> Option<RuleId> {
        (self.table == *table && self.chain == chain).then_some(RuleId::Handle(self.handle))
    }
}

/// One line: `ip nat 17 POSTROUTING`.
impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.table, self.handle, self.chain)
    }
}

impl FromStr for Hint {
    type Err = Error;

    /// Reads what `Display` writes.
    fn from_str(line: &str) -> Result<Self> {
        let parse = || {
            let (table, rest) = TableRef::read(line)?;
            let (handle, chain) = rest.split_once(' ')?;
            Some(Self { table, handle: handle.parse().ok()?, chain: chain.to_owned() })
        };
        parse().ok_or_else(|| Error::InvalidText { kind: "rule hint", value: line.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xt;

    #[test]
    fn hints_survive_being_written_down() {
        let table = TableRef::Xt(xt::Family::Ipv6, xt::Table::Nat);
        let hint = Hint::new(&table, "a chain", 17);
        assert_eq!(hint.to_string(), "ip6 nat 17 a chain");
        assert_eq!(hint.to_string().parse::<Hint>().unwrap(), hint);
        for text in ["", "ip nat", "ip nat x POSTROUTING", "inet nat 1 x", "ip mangle 1 x", "ip nat 18"] {
            text.parse::<Hint>().unwrap_err();
        }
    }
}
