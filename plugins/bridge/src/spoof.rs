// SPDX-License-Identifier: Apache-2.0
//! `macspoofchk`: packets that enter the bridge by the container's port must carry the container's own MAC
//! (reference: `pkg/link/spoofcheck.go`). Lives in table `bridge nat`.

use cnibox_netfilter::nft::{Chain, ChainType, Family, Hook, HookPoint, Rule, Statement, Verdict};
use cnibox_netfilter::{Batch, Owner, TableRef, if_any};
use cnibox_netlink::Mac;
use cnibox_spec::Attachment;
use cnibox_sys::{Failure, Sys};

/// The rules of one attachment. Another one's may have the same names, since container and interface are joined by a
/// character that either may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpoofCheck {
    attachment: Attachment,
    id: String,
}

impl SpoofCheck {
    /// What the ledger is told of an attachment that has rules.
    pub(crate) const NOTE: &str = "macspoofchk";

    pub(crate) fn of(attachment: &Attachment) -> Self {
        let id = format!("{}-{}", attachment.container, attachment.ifname);
        Self { attachment: attachment.clone(), id }
    }

    fn comment(&self) -> String {
        format!("macspoofchk-{}", self.id)
    }

    fn iface_chain(&self) -> String {
        format!("cni-br-iface-{}", self.id)
    }

    fn mac_chain(&self) -> String {
        format!("{}-mac", self.iface_chain())
    }

    /// Lets `mac` and nothing else in by `port`.
    pub(crate) fn install(&self, port: &str, mac: Mac) -> Batch {
        let rule = |statements| Rule::new(statements).with_comment(self.comment());
        let jump = |chain: String| Verdict::Jump(chain).into();
        let mut batch = Batch::new();
        batch
            .nft(Family::Bridge, TABLE)
            .ensure_table(None)
            .ensure_chain(Chain::base(BASE, Hook::accept(ChainType::Filter, HookPoint::Prerouting, PRIORITY)))
            .ensure_chain(Chain::regular(self.iface_chain()))
            .ensure_chain(Chain::regular(self.mac_chain()))
            .flush_chain(self.iface_chain())
            .flush_chain(self.mac_chain())
            .delete_rules_where(BASE, Owner::Comment(self.comment()))
            .append_rule(BASE, rule(vec![Statement::in_interface(port), jump(self.iface_chain())]))
            .append_rule(self.iface_chain(), rule(vec![jump(self.mac_chain())]))
            .append_rule(self.mac_chain(), rule(vec![Statement::ether_source(mac.0), Verdict::Return.into()]))
            .append_rule(self.mac_chain(), rule(vec![Verdict::Drop.into()]));
        batch
    }

    /// Takes the rules away; the table and its base chain stay.
    pub(crate) fn remove(&self) -> Batch {
        let mut batch = Batch::new();
        batch
            .nft(Family::Bridge, TABLE)
            .delete_rules_where(BASE, Owner::Comment(self.comment()))
            .delete_chain(self.iface_chain())
            .delete_chain(self.mac_chain());
        batch
    }

    /// Whether the attachment still has its chain, and the port's rule that leads there.
    pub(crate) fn is_installed(&self, sys: &mut Sys<'_>) -> Result<bool, Failure> {
        let comment = self.comment();
        let rules = sys.engine()?.rules(&table(), BASE)?;
        let entry = rules.iter().any(|rule| rule.comment() == Some(&comment));
        let filter = sys.engine()?.rules(&table(), &self.mac_chain())?;
        Ok(entry && filter.len() >= 2)
    }

    /// Removes the rules if there are any, without reading everybody else's when there are none.
    pub(crate) fn remove_if_present(&self, sys: &mut Sys<'_>) -> Result<(), Failure> {
        if if_any(sys.engine()?.chain_exists(&table(), &self.iface_chain()))? && !self.is_anothers(sys)? {
            sys.engine()?.apply(&self.remove())?;
        }
        Ok(())
    }

    /// Whether the port that leads to the rules is another attachment's.
    fn is_anothers(&self, sys: &mut Sys<'_>) -> Result<bool, Failure> {
        let comment = self.comment();
        for rule in sys.engine()?.rules(&table(), BASE)? {
            let port = rule.nft().filter(|_| rule.comment() == Some(&comment)).and_then(port);
            if let Some(port) = port
                && sys.is_marked_as_anothers(port, &self.attachment)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The port that a rule is for.
fn port(rule: &Rule) -> Option<&str> {
    rule.statements.iter().find_map(|statement| {
        if let Statement::InInterface { name, negated: false } = statement {
            Some(name.as_str())
        } else {
            None
        }
    })
}

fn table() -> TableRef {
    TableRef::Nft(Family::Bridge, TABLE.to_owned())
}

const TABLE: &str = "nat";
const BASE: &str = "PREROUTING";
/// `dstnat` of `nft(8)` in the bridge family.
const PRIORITY: i32 = -300;
