// SPDX-License-Identifier: Apache-2.0
//! The iptables dialect against the installed iptables-nft.

use cnibox_netfilter::xt::{Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Family, Position};

use crate::common::{engine, in_netns, run};

#[test]
fn smoke() {
    in_netns(|| {
        let mut batch = Batch::new();
        batch
            .xt(Family::Ipv4, Table::Nat)
            .ensure_chain("CNI-A")
            .append_rule("CNI-A", Rule::new(vec![Match::comment("hello \"x\"")], Target::Masquerade))
            .ensure_rule("POSTROUTING", Rule::new(vec![], Target::Jump("CNI-A".into())), Position::Tail);
        engine().apply(&batch).unwrap();
        engine().apply(&batch).unwrap();
        println!("{}", run("iptables-save", &[]));
        println!("{}", run("nft", &["list", "ruleset"]));
    });
}
