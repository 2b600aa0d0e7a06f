// SPDX-License-Identifier: Apache-2.0
//! IP masquerade of a container's addresses, in iptables' tables or in a native nf_tables table
//! (reference: `pkg/ip/ipmasq_iptables_linux.go`, `pkg/ip/ipmasq_nftables_linux.go`).
//!
//! The iptables chain belongs to network and container, all interfaces together; the nf_tables rules to a single
//! attachment. Both names are hashes, so DEL needs no memory.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cnibox_netfilter::nft::{self, ChainType, Hook, HookPoint, Statement, Verdict};
use cnibox_netfilter::xt::{self, Match, Target};
use cnibox_netfilter::{Batch, Engine, Owner, Position, RuleInfo, TableRef, if_any};
use cnibox_spec::{Attachment, LiveAttachment, NetworkName, sha512_prefix, subnet};
use ipnetwork::IpNetwork;

use crate::call::{Failure, Sys, Txn};
use crate::ledger::Ledger;
use crate::node::Backend;

/// The masquerade of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masquerade {
    attachment: Attachment,
}

impl Masquerade {
    /// That of this attachment.
    #[must_use]
    pub fn of(attachment: &Attachment) -> Self {
        Self { attachment: attachment.clone() }
    }

    /// Rules like those of any attachment, to ask the kernel about.
    pub(crate) fn sample() -> Batch {
        let names = Attachment::new("network", "container", "eth0");
        let address = IpNetwork::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        names.map_or_else(|_| Batch::new(), |names| Self::of(&names).install(Backend::Iptables, &[address]))
    }

    /// Where native rules go.
    pub(crate) fn native_table() -> TableRef {
        TableRef::Nft(nft::Family::Inet, NFT_TABLE.to_owned())
    }

    /// The iptables chain, shared by the container's interfaces on the network.
    #[must_use]
    pub fn chain(&self) -> String {
        xt_chain(self.attachment.network.as_str(), self.attachment.container.as_str())
    }

    fn xt_comment(&self) -> String {
        let Attachment { network, container, .. } = &self.attachment;
        format!("name: {:?} id: {:?}", network.as_str(), container.as_str())
    }

    /// The beginning of the nf_tables comment, which identifies the attachment.
    fn nft_key(&self) -> String {
        format!(
            "{}-{}",
            nft_network_key(self.attachment.network.as_str()),
            sha512_prefix(&[self.attachment.ifname.as_str(), ":", self.attachment.container.as_str()], 16)
        )
    }

    fn nft_comment(&self) -> String {
        let Attachment { network, container, ifname } = &self.attachment;
        let comment = format!("{}, net: {network}, if: {ifname}, id: {container}", self.nft_key());
        let mut comment = comment.replace('"', "");
        comment.truncate(comment.floor_char_boundary(NFT_COMMENT_LIMIT));
        comment
    }

    /// The changes that masquerade `addresses`.
    #[must_use]
    pub fn install(&self, backend: Backend, addresses: &[IpNetwork]) -> Batch {
        let mut batch = Batch::new();
        match backend {
            Backend::Iptables => self.install_xt(&mut batch, addresses),
            Backend::Nftables => self.install_nft(&mut batch, addresses),
        }
        batch
    }

    fn install_xt(&self, batch: &mut Batch, addresses: &[IpNetwork]) {
        let chain = self.chain();
        for address in addresses {
            let mut changes = batch.xt(xt::Family::of(address.ip()), xt::Table::Nat).ensure_chain(&chain);
            for (chain, rule) in self.xt_rules(&chain, *address) {
                changes = changes.ensure_rule(chain, rule, Position::Tail);
            }
        }
    }

    /// The rules of one address with the chains that they stand in.
    fn xt_rules<'a>(&self, chain: &'a str, address: IpNetwork) -> [(&'a str, xt::Rule); 3] {
        let rule =
            |condition, target| xt::Rule::new(vec![condition, Match::comment(self.xt_comment())], target);
        [
            (chain, rule(Match::destination(address), Target::Accept)),
            (chain, rule(Match::not_destination(multicast(address.is_ipv4())), Target::Masquerade)),
            (POSTROUTING, self.xt_entry(address)),
        ]
    }

    /// The rule that sends the address's packets through the chain.
    fn xt_entry(&self, address: IpNetwork) -> xt::Rule {
        let source = Match::source(IpNetwork::from(address.ip()));
        xt::Rule::new(vec![source, Match::comment(self.xt_comment())], Target::Jump(self.chain()))
    }

    fn install_nft(&self, batch: &mut Batch, addresses: &[IpNetwork]) {
        let not_multicast =
            |net: IpNetwork| nft::Rule::new(vec![Statement::destination(net), Verdict::Return.into()]);
        let mut changes = batch
            .nft(nft::Family::Inet, NFT_TABLE)
            .ensure_table(Some(NFT_TABLE_COMMENT))
            .ensure_chain(nft::Chain::regular(NFT_CHECKS).with_comment(NFT_CHECKS_COMMENT))
            .ensure_chain(nft::Chain::base(
                NFT_BASE,
                Hook::new(ChainType::Nat, HookPoint::Postrouting, SRCNAT),
            ))
            .flush_chain(NFT_BASE)
            .append_rule(NFT_BASE, not_multicast(multicast(true)))
            .append_rule(NFT_BASE, not_multicast(multicast(false)))
            .append_rule(NFT_BASE, nft::Rule::new(vec![Verdict::Goto(NFT_CHECKS.to_owned()).into()]))
            .delete_rules_where(NFT_CHECKS, Owner::CommentPrefix(self.nft_key()));
        for address in addresses {
            let statements = vec![
                Statement::source(IpNetwork::from(address.ip())),
                Statement::not_destination(subnet(*address)),
                Statement::Masquerade,
            ];
            changes =
                changes.append_rule(NFT_CHECKS, nft::Rule::new(statements).with_comment(self.nft_comment()));
        }
    }

    /// The changes that take back [`Masquerade::install`] for `addresses` and leave the container's other interfaces
    /// alone.
    #[must_use]
    pub fn remove(&self, backend: Backend, addresses: &[IpNetwork]) -> Batch {
        let mut batch = Batch::new();
        match backend {
            Backend::Iptables => {
                for address in addresses {
                    batch
                        .xt(xt::Family::of(address.ip()), xt::Table::Nat)
                        .delete_rule(POSTROUTING, self.xt_entry(*address))
                        .delete_chain_if_unreferenced(self.chain());
                }
            }
            Backend::Nftables => self.remove_nft(&mut batch),
        }
        batch
    }

    fn remove_nft(&self, batch: &mut Batch) {
        batch
            .nft(nft::Family::Inet, NFT_TABLE)
            .delete_rules_where(NFT_CHECKS, Owner::CommentPrefix(self.nft_key()));
    }

    /// What is missing of the rules of [`Masquerade::install`] that concern `addresses`.
    pub(crate) fn missing(
        &self,
        engine: &mut Engine,
        backend: Backend,
        addresses: &[IpNetwork],
    ) -> cnibox_netfilter::Result<Option<String>> {
        match backend {
            Backend::Iptables => self.missing_xt(engine, addresses),
            Backend::Nftables => self.missing_nft(engine, addresses),
        }
    }

    fn missing_xt(
        &self,
        engine: &mut Engine,
        addresses: &[IpNetwork],
    ) -> cnibox_netfilter::Result<Option<String>> {
        let chain = self.chain();
        for address in addresses {
            let family = xt::Family::of(address.ip());
            for (chain, rule) in self.xt_rules(&chain, *address) {
                let rule = std::slice::from_ref(&rule);
                if let [missing] = *engine.missing(family, xt::Table::Nat, chain, rule)? {
                    let words = missing.to_args().join(" ");
                    return Ok(Some(format!("rule {words} in chain {chain} of table nat")));
                }
            }
        }
        Ok(None)
    }

    fn missing_nft(
        &self,
        engine: &mut Engine,
        addresses: &[IpNetwork],
    ) -> cnibox_netfilter::Result<Option<String>> {
        let table = Self::native_table();
        let key = self.nft_key();
        let rules = engine.rules(&table, NFT_CHECKS)?;
        let own = |rule: &&RuleInfo| rule.comment().is_some_and(|comment| comment.starts_with(&key));
        let found = rules.iter().filter(own).count();
        let entries = engine.rules(&table, NFT_BASE)?;
        if entries.iter().all(|rule| rule.jump() != Some(NFT_CHECKS)) {
            return Ok(Some(format!("rule goto {NFT_CHECKS} in chain {NFT_BASE} of table {NFT_TABLE}")));
        }
        let missing = || format!("masquerade rule {key} in chain {NFT_CHECKS} of table {NFT_TABLE}");
        Ok((found < addresses.len()).then(missing))
    }
}

impl Txn<'_, '_> {
    /// Masquerades `addresses`, if that is asked for, while `work` goes on, see [`Txn::rules_beside`]; with the backend that
    /// is asked for or else the host wants.
    ///
    /// # Errors
    /// What `work` fails with, or else what the packet filter refuses.
    pub fn masquerade_add_beside<T>(
        &mut self,
        masquerade: &Masquerade,
        asked: Option<Option<Backend>>,
        addresses: &[IpNetwork],
        work: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(asked) = asked else { return work(self) };
        let backend = self.sys().backend(asked, || masquerade.install(Backend::Iptables, addresses))?;
        let undo = masquerade.remove(backend, addresses);
        self.rules_beside(undo, &masquerade.install(backend, addresses), work)
    }
}

impl Sys<'_> {
    /// Removes the attachment's masquerade from both backends, since the configuration may have changed in between.
    /// `in_use` are the addresses that the container still has on other interfaces: their rules stay.
    ///
    /// # Errors
    /// What the packet filter refuses; what is missing is no error.
    pub fn masquerade_remove(&mut self, masquerade: &Masquerade, in_use: &[IpAddr]) -> Result<(), Failure> {
        if let Some(addresses) = self.remains().and_then(|remains| remains.addresses.clone()) {
            // Nothing but what is for the addresses of a dead attempt: others of the same names may live.
            let addresses: Vec<_> = addresses.into_iter().map(IpNetwork::from).collect();
            let mut batch = masquerade.remove(Backend::Iptables, &addresses);
            batch.extend(masquerade.remove(Backend::Nftables, &addresses));
            return Ok(self.engine()?.clear(&batch)?);
        }
        let mut batch = Batch::new();
        let chain = masquerade.chain();
        for family in self.families_in_use()? {
            if in_use.is_empty() {
                // The chain's name may be another attachment's, too: it hashes both names without anything between them.
                let jumps = Owner::JumpsToWith { chain: chain.clone(), comment: masquerade.xt_comment() };
                batch.xt(family, xt::Table::Nat).delete_rules_where(POSTROUTING, jumps);
            } else {
                let goes =
                    |rule: &RuleInfo| !rule.source().is_some_and(|source| in_use.contains(&source.ip()));
                let Some(entries) = self.masquerade_entries(masquerade, family)? else { continue };
                for rule in entries.into_iter().filter(goes) {
                    batch.xt(family, xt::Table::Nat).delete_found(POSTROUTING, rule.id);
                }
            }
            batch.xt(family, xt::Table::Nat).delete_chain_if_unreferenced(&chain);
        }
        masquerade.remove_nft(&mut batch);
        Ok(self.engine()?.clear(&batch)?)
    }

    /// Of the addresses that are masqueraded under the attachment's names, those that some namespace has and that are not
    /// known to be its own: of another interface of the container's on this network, which nobody noted.
    ///
    /// # Errors
    /// When the packet filter or the kernel refuses to tell.
    pub(crate) fn masqueraded_for_others(&mut self, masquerade: &Masquerade) -> Result<Vec<IpAddr>, Failure> {
        let own = self.given_addresses().to_vec();
        let mut found = BTreeSet::new();
        for family in self.families_in_use()? {
            let entries = self.masquerade_entries(masquerade, family)?.unwrap_or_default();
            found.extend(entries.iter().filter_map(|rule| Some(rule.source()?.ip())));
        }
        found.retain(|address| !own.contains(address));
        Ok(self.in_use_among(&found, None)?.into_iter().collect())
    }

    /// The rules that lead into the attachment's chain; `None` without the chain: there is no need to read everybody's.
    fn masquerade_entries(
        &mut self,
        masquerade: &Masquerade,
        family: xt::Family,
    ) -> Result<Option<Vec<RuleInfo>>, Failure> {
        let table = TableRef::Xt(family, xt::Table::Nat);
        let (chain, comment) = (masquerade.chain(), masquerade.xt_comment());
        if !if_any(self.engine()?.chain_exists(&table, &chain))? {
            return Ok(None);
        }
        let mut entries = self.engine()?.rules(&table, POSTROUTING)?;
        entries.retain(|rule| rule.jump() == Some(&chain) && rule.comment() == Some(&comment));
        Ok(Some(entries))
    }

    /// Those whose `nat` table iptables may have something in.
    fn families_in_use(&mut self) -> Result<Vec<xt::Family>, Failure> {
        let engine = self.engine()?;
        let families = [xt::Family::Ipv4, xt::Family::Ipv6].into_iter();
        Ok(families.filter(|family| !engine.is_unused(*family, xt::Table::Nat)).collect())
    }

    /// Removes the masquerade of every attachment of `network` that is not among `valid`, from both backends. A chain of those
    /// that the ledger knows goes although somebody has flushed the rule that would tell whose it is.
    ///
    /// # Errors
    /// What the packet filter refuses.
    pub fn masquerade_collect(
        &mut self,
        network: &NetworkName,
        valid: &[LiveAttachment],
    ) -> Result<(), Failure> {
        let mut batch = Batch::new();
        let stale = Ledger::of_host().stale(network, valid);
        let network = network.as_str();
        // A valid attachment's chain may have the same name.
        let live: BTreeSet<_> = valid.iter().map(|live| xt_chain(network, &live.container_id)).collect();
        let bare = stale.iter().map(|record| Masquerade::of(&record.attachment).chain());
        let bare: BTreeSet<_> = bare.filter(|chain| !live.contains(chain)).collect();
        for family in self.families_in_use()? {
            let table = TableRef::Xt(family, xt::Table::Nat);
            for rule in if_any(self.engine()?.rules(&table, POSTROUTING))? {
                let Some(chain) = stale_chain(&rule, network, valid) else { continue };
                batch
                    .xt(family, xt::Table::Nat)
                    .delete_found(POSTROUTING, rule.id)
                    .delete_chain_if_unreferenced(chain);
            }
            for chain in &bare {
                batch.xt(family, xt::Table::Nat).delete_chain_if_unreferenced(chain);
            }
        }
        let table = Masquerade::native_table();
        for rule in if_any(self.engine()?.rules(&table, NFT_CHECKS))? {
            if rule.comment().is_some_and(|comment| nft_is_stale(comment, network, valid)) {
                batch.nft(nft::Family::Inet, NFT_TABLE).delete_found(NFT_CHECKS, rule.id);
            }
        }
        Ok(self.engine()?.clear(&batch)?)
    }
}

fn xt_chain(network: &str, container: &str) -> String {
    format!("CNI-{}", sha512_prefix(&[network, container], 24))
}

/// The chain of an entry rule whose container is not among `valid`. The chain's name must be the one that network and
/// container of the comment hash to: the comment alone could be anybody's.
fn stale_chain(rule: &RuleInfo, network: &str, valid: &[LiveAttachment]) -> Option<String> {
    let id = rule.comment()?.strip_prefix(&format!("name: {network:?} id: \""))?.strip_suffix('"')?;
    if valid.iter().any(|live| live.container_id == id) {
        return None;
    }
    let chain = xt_chain(network, id);
    (rule.jump() == Some(&chain)).then_some(chain)
}

/// Whether a comment is of `network` and of no attachment in `valid`, as the reference's helper decides it.
fn nft_is_stale(comment: &str, network: &str, valid: &[LiveAttachment]) -> bool {
    let of_network =
        comment.strip_prefix(&nft_network_key(network)).is_some_and(|rest| rest.starts_with('-'));
    of_network
        && !valid.iter().any(|live| {
            let attachment = Attachment::new(network, &live.container_id, &live.ifname);
            attachment.is_ok_and(|live| comment.starts_with(&Masquerade::of(&live).nft_key()))
        })
}

fn nft_network_key(network: &str) -> String {
    sha512_prefix(&[network], 16)
}

fn multicast(v4: bool) -> IpNetwork {
    let (ip, length) = if v4 {
        (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 0)), 4)
    } else {
        (IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0)), 8)
    };
    // The length fits the family.
    IpNetwork::new(ip, length).unwrap_or_else(|_| IpNetwork::from(ip))
}

const POSTROUTING: &str = "POSTROUTING";
const NFT_TABLE: &str = "cni_plugins_masquerade";
const NFT_TABLE_COMMENT: &str = "Masquerading for plugins from github.com/containernetworking/plugins";
const NFT_CHECKS: &str = "masq_checks";
const NFT_CHECKS_COMMENT: &str =
    "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet";
const NFT_BASE: &str = "postrouting";
/// `srcnat` of `nft(8)`.
const SRCNAT: i32 = 100;
/// What `nft` accepts as a comment, in bytes (`NFTNL_UDATA_COMMENT_MAXLEN` of libnftnl).
const NFT_COMMENT_LIMIT: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn masquerade() -> Masquerade {
        Masquerade::of(&Attachment::new("mynet", "cont1", "eth0").unwrap())
    }

    #[test]
    fn names_are_the_reference_vectors() {
        assert_eq!(masquerade().chain(), "CNI-c729ec77c46fa9b53d651af8");
        assert_eq!(
            masquerade().nft_comment(),
            "d23676b4f2d9fe04-f37378035343678b, net: mynet, if: eth0, id: cont1"
        );
    }

    #[test]
    fn only_the_networks_own_dead_attachments_are_stale() {
        let live = [LiveAttachment { container_id: "cont1".into(), ifname: "eth0".into() }];
        let comment = masquerade().nft_comment();
        assert!(!nft_is_stale(&comment, "mynet", &live));
        assert!(nft_is_stale(&comment, "mynet", &[]));
        assert!(!nft_is_stale(&comment, "other", &[]));
    }
}
