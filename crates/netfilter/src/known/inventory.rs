// SPDX-License-Identifier: Apache-2.0
//! What chains hold at most, as of one generation of the ruleset: a rule that is not in here is not there, and nobody's
//! rules have to be listed to know. It must never know how that was found out, nor where it is kept.
//!
//! A transaction that is bound to a generation is committed only if nothing has changed since. So a chain that was read at
//! that generation holds in the next one what it held, and what the transaction adds. Rules that went stay in here until
//! the chain is read again: what is in here may be there.

use std::cell::OnceCell;
use std::fmt::{self, Write};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::rule::TableRef;

/// What an [`crate::Engine`] knows of the chains that it has read, for the next one on the same ruleset. Only long chains of
/// the iptables dialect are worth it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    chains: Vec<Holding>,
}

/// Where the inventory of a ruleset is kept, by the generation that it is of. What is lost costs a listing; what is given for
/// a generation that it is not of costs a rule that is there twice.
pub trait Shelf: Send {
    /// The inventory of this generation.
    fn inventory(&self, generation: u32) -> Option<Inventory>;

    /// Keeps the inventory of this generation and no other; nothing if it says nothing.
    fn keep(&self, generation: u32, inventory: &Inventory);

    /// What is kept as of the generation `was` is of the generation `now`, too, and `was` has passed.
    fn advance(&self, was: u32, now: u32);
}

/// The inventory of one generation, which is not read before somebody asks.
pub(crate) struct Kept<'s> {
    shelf: &'s dyn Shelf,
    generation: u32,
    inventory: OnceCell<Option<Inventory>>,
}

impl<'s> Kept<'s> {
    pub(crate) fn new(shelf: &'s dyn Shelf, generation: u32) -> Self {
        Self { shelf, generation, inventory: OnceCell::new() }
    }

    /// Whether the chain is known to have no rule that says this.
    pub(crate) fn lacks(&self, table: &TableRef, chain: &str, text: &str) -> bool {
        self.inventory().as_ref().is_some_and(|inventory| inventory.lacks(table, chain, text))
    }

    fn inventory(&self) -> &Option<Inventory> {
        self.inventory.get_or_init(|| self.shelf.inventory(self.generation))
    }

    /// The ruleset is of the generation `now`: nothing has changed it but what `learn` makes of the inventory, if it makes
    /// anything of it.
    pub(crate) fn pass_on(mut self, now: u32, learn: Option<impl FnOnce(&mut Inventory)>) {
        let Some(learn) = learn else { return self.shelf.advance(self.generation, now) };
        self.inventory();
        let known = self.inventory.take().flatten();
        let was_known = known.is_some();
        let mut inventory = known.unwrap_or_default();
        learn(&mut inventory);
        if was_known || !inventory.is_empty() {
            self.shelf.keep(now, &inventory);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Holding {
    table: TableRef,
    chain: String,
    /// Of the rules' texts, each with a comma behind it.
    digests: String,
}

impl Holding {
    fn is(&self, table: &TableRef, chain: &str) -> bool {
        self.table == *table && self.chain == chain
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        self.digests.as_bytes().chunks(DIGEST)
    }
}

impl Inventory {
    /// Whether the chain is known to have no rule that says this.
    pub(crate) fn lacks(&self, table: &TableRef, chain: &str, text: &str) -> bool {
        let known = self.chains.iter().find(|holding| holding.is(table, chain));
        let digest = digest(text);
        known.is_some_and(|holding| !holding.each().any(|held| held == digest.as_bytes()))
    }

    /// Whether it says nothing of any chain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Notes what a chain holds, as it was read.
    pub(crate) fn note(&mut self, table: &TableRef, chain: &str, texts: &[String]) {
        self.forget(table, chain);
        if texts.len() > MOST_RULES || chain.contains(char::is_control) {
            return;
        }
        self.chains.truncate(MOST_CHAINS - 1);
        let digests = texts.iter().map(|text| digest(text)).collect();
        self.chains.push(Holding { table: table.clone(), chain: chain.to_owned(), digests });
    }

    /// Notes a rule that was added to a chain, if it is one that is known.
    pub(crate) fn add(&mut self, table: &TableRef, chain: &str, text: &str) {
        if let Some(holding) = self.chains.iter_mut().find(|holding| holding.is(table, chain)) {
            holding.digests += &digest(text);
        }
        self.chains.retain(|holding| holding.digests.len() <= MOST_RULES * DIGEST);
    }

    /// Notes nothing of a chain any more.
    pub(crate) fn forget(&mut self, table: &TableRef, chain: &str) {
        self.chains.retain(|holding| !holding.is(table, chain));
    }
}

/// The generation that a transaction makes of this one (kernel net/netfilter/nf_tables_api.c, nf_tables_commit): never 0.
pub(crate) fn generation_after(generation: u32) -> u32 {
    generation.checked_add(1).unwrap_or(1)
}

/// FNV-1a, folded: every ADD reads and writes all of them. Two rules of one digest cost a listing.
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:08x},", (hash >> 32 ^ hash) & u64::from(u32::MAX))
}

/// Of each chain a line for its name and one for what it holds.
impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Holding { table, chain, digests } in &self.chains {
            writeln!(f, "{table} {chain}")?;
            f.write_str(digests)?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl FromStr for Inventory {
    type Err = Error;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut lines = text.split_terminator('\n');
            let mut inventory = Self::default();
            while let Some(name) = lines.next() {
                let (table, chain) = TableRef::read(name)?;
                let (chain, digests) = (chain.to_owned(), lines.next()?.to_owned());
                let holding = Holding { table, chain, digests };
                let is_whole = holding.each().all(|digest| digest.len() == DIGEST && digest.ends_with(b","));
                inventory.chains.push(is_whole.then_some(holding)?);
            }
            Some(inventory)
        };
        parse().ok_or_else(|| Error::InvalidText { kind: "inventory of rules", value: text.to_owned() })
    }
}

/// Bytes of a digest's text.
const DIGEST: usize = 9;
/// A chain that held more since it was read is read again.
const MOST_RULES: usize = 16 * 1024;
const MOST_CHAINS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xt::{Family, Table};

    fn table() -> TableRef {
        TableRef::Xt(Family::Ipv4, Table::Filter)
    }

    fn texts(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|number| format!("-s 10.0.0.{number}/32 -j ACCEPT")).collect()
    }

    #[test]
    fn what_is_not_in_it_is_lacking_and_of_other_chains_nothing_is_known() {
        let mut inventory = Inventory::default();
        inventory.note(&table(), "a chain", &texts(0..100));
        inventory.add(&table(), "a chain", "-j DROP");
        inventory.add(&table(), "another", "-j DROP");
        let read: Inventory = inventory.to_string().parse().unwrap();
        assert_eq!(read, inventory);
        for text in texts(0..100).iter().map(String::as_str).chain(["-j DROP"]) {
            assert!(!read.lacks(&table(), "a chain", text), "{text}");
        }
        assert!(read.lacks(&table(), "a chain", "-j RETURN"));
        assert!(!read.lacks(&table(), "another", "-j RETURN"));
        assert!(!read.lacks(&TableRef::Xt(Family::Ipv6, Table::Filter), "a chain", "-j RETURN"));
    }

    #[test]
    fn no_generation_is_0() {
        assert_eq!((generation_after(1), generation_after(u32::MAX)), (2, 1));
    }

    #[test]
    fn it_stays_small() {
        let mut inventory = Inventory::default();
        inventory.note(&table(), "long", &texts(0..MOST_RULES));
        assert!(inventory.lacks(&table(), "long", "-j DROP"));
        inventory.add(&table(), "long", "-j RETURN");
        assert!(!inventory.lacks(&table(), "long", "-j DROP"));
        for chain in 0..20 {
            inventory.note(&table(), &chain.to_string(), &texts(0..2));
        }
        assert_eq!(inventory.chains.len(), MOST_CHAINS);
        assert!(inventory.lacks(&table(), "19", "-j DROP"));
    }

    #[test]
    fn half_a_text_is_none() {
        let digests = ["0123", "01234567", "01234567,0", "0123456789abcdef,0123456789abcdef,"];
        let digests = digests.map(|digests| format!("ip filter C\n{digests}"));
        let texts = ["x", "ip filter", "ip filter C", "no table C\n\n"];
        for text in texts.into_iter().chain(digests.iter().map(String::as_str)) {
            text.parse::<Inventory>().unwrap_err();
        }
        assert_eq!("".parse::<Inventory>().unwrap(), Inventory::default());
    }
}
