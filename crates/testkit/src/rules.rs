// SPDX-License-Identifier: Apache-2.0
//! Rules as other people's programs see them: `iptables` and `nft`, through the packages that are made for them. Neither
//! shares a line with what wrote the rules.

use nftables::helper::get_current_ruleset_with_args;
use nftables::schema::{NfListObject, NfObject, Rule};

use crate::Sandbox;

impl Sandbox {
    /// Whether the kernel can hold what `iptables` writes.
    pub fn holds_iptables(&self) -> bool {
        let rule = ["OUTPUT", "-m", "comment", "--comment", "probe", "-j", "ACCEPT"];
        let with = |verb| [&[verb], &rule[..]].concat();
        self.succeeds("iptables", &with("-A")) && self.succeeds("iptables", &with("-D"))
    }

    /// The rules of a table of `iptables`, each as `-A CHAIN ...`.
    ///
    /// # Panics
    /// If `iptables` cannot be started or fails.
    pub fn iptables_rules(&self, table: &str) -> Vec<String> {
        let listed = self.netns().run(|| iptables().list_table(table).expect("iptables -S"));
        let mut rules = listed.expect("enter the sandbox");
        rules.retain(|rule| rule.starts_with("-A "));
        rules
    }

    /// Deletes a rule of those that [`Sandbox::iptables_rules`] returns, whose words have no quotes inside.
    ///
    /// # Panics
    /// If `iptables` cannot be started or does not know it.
    pub fn iptables_delete(&self, table: &str, rule: &str) {
        let mut words = rule.splitn(3, ' ').skip(1);
        let (chain, rest) = words.next().zip(words.next()).expect("-A CHAIN and words");
        let deleted = self.netns().run(|| iptables().delete(table, chain, rest).expect("iptables -D"));
        deleted.expect("enter the sandbox");
    }

    /// The rules of a native table, as `nft -j` understands them.
    ///
    /// # Panics
    /// If `nft` cannot be started, fails, or says something that is no rule set.
    pub fn nft_rules(&self, family: &str, table: &str) -> Vec<Rule<'static>> {
        let list = || {
            get_current_ruleset_with_args(None::<&str>, ["list", "table", family, table])
                .expect("nft -j list table")
        };
        let objects = self.netns().run(list).expect("enter the sandbox").objects.into_owned();
        let rule = |object| match object {
            NfObject::ListObject(NfListObject::Rule(rule)) => Some(rule),
            NfObject::ListObject(_) | NfObject::CmdObject(_) => None,
        };
        objects.into_iter().filter_map(rule).collect()
    }
}

fn iptables() -> iptables::IPTables {
    iptables::new(false).expect("run iptables")
}
