// SPDX-License-Identifier: Apache-2.0
//! Rules as words of the iptables command line.

#![expect(clippy::wildcard_enum_match_arm, reason = "anything else fails the test")]

use std::fmt::Write;

use cnibox_netfilter::{AnyRule, Change, Op, TableRef};
use cnibox_spec::{Json, parse_result};

use super::*;

fn config(policy: IngressPolicy) -> Config {
    Config {
        backend: None,
        admin_chain: "CNI-ADMIN".into(),
        zone: "trusted".into(),
        policy,
        prev_result: None,
    }
}

fn result(json: &str) -> CniResult {
    parse_result("1.0.0", &Json::parse(json.as_bytes()).unwrap()).unwrap()
}

fn dual_stack() -> CniResult {
    result(
        r#"{"cniVersion":"1.0.0","interfaces":[{"name":"cni0"},{"name":"veth1"},{"name":"eth0","sandbox":"/x"}],
            "ips":[{"address":"fd00::2/64","interface":2},{"address":"10.22.0.2/16","interface":2},{"address":"10.23.0.2/16"}]}"#,
    )
}

fn commands(desired: &[Desired]) -> String {
    let mut batch = Batch::new();
    desired.iter().for_each(|family| family.install(&mut batch));
    let mut text = String::new();
    for change in batch.changes() {
        let Change { table: TableRef::Xt(family, _), op } = change else { panic!("{change:?}") };
        match op {
            Op::EnsureChain(chain) => writeln!(text, "{} -N {}", family.tool(), chain.name),
            Op::EnsureRule { chain, rule, at } => {
                let AnyRule::Xt(rule) = rule.rule() else { panic!("{rule:?}") };
                let flag = if *at == Position::Head { "-I" } else { "-A" };
                writeln!(text, "{} {flag} {chain} {}", family.tool(), rule.to_args().join(" "))
            }
            other => panic!("{other:?}"),
        }
        .unwrap();
    }
    text
}

#[track_caller]
fn golden(name: &str, actual: &str) {
    cnibox_testkit::golden(format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR")), actual);
}

#[test]
fn each_policy() {
    for policy in [IngressPolicy::Open, IngressPolicy::SameBridge, IngressPolicy::Isolated] {
        golden(policy.name(), &commands(&desired(&config(policy), &dual_stack()).unwrap()));
    }
}

#[test]
fn without_addresses_nothing_is_needed() {
    let empty = result(r#"{"cniVersion":"1.0.0","interfaces":[{"name":"cni0"}]}"#);
    assert!(desired(&config(IngressPolicy::Isolated), &empty).unwrap().is_empty());
}

#[test]
fn beside_firewalld_only_policies_are_rules() {
    let of = |policy| policy_only(desired(&config(policy), &dual_stack()).unwrap());
    assert!(of(IngressPolicy::Open).is_empty());
    let isolated = commands(&of(IngressPolicy::Isolated));
    let all = commands(&desired(&config(IngressPolicy::Isolated), &dual_stack()).unwrap());
    let is_policy = |line: &&str| line.contains("ISOLATION");
    assert_eq!(isolated.lines().collect::<Vec<_>>(), all.lines().filter(is_policy).collect::<Vec<_>>());
}

#[test]
fn policies_want_a_bridge() {
    let text = |json: &str| desired(&config(IngressPolicy::Isolated), &result(json)).unwrap_err().to_string();
    assert_eq!(
        text(r#"{"ips":[{"address":"10.0.0.2/8"}]}"#),
        r#"interface needs to be set for ingress policy "isolated", make sure to chain "firewall" plugin with "bridge""#
    );
    assert_eq!(text(r#"{"interfaces":[{"name":""}]}"#), "got empty bridge name");
    assert_eq!(text(r#"{"interfaces":[{"name":"a b"}]}"#), r#"invalid bridge name "a b""#);
}

#[test]
fn removal_is_about_addresses_only() {
    let batch = remove(["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()]);
    assert_eq!(batch.changes().len(), 4);
    assert!(batch.changes().iter().all(|change| matches!(change.op, Op::DeleteRule { .. })));
}
