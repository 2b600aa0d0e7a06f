// SPDX-License-Identifier: Apache-2.0
//! The native dialect against the installed nft.
//!
//! The scripts are what the Go plugins feed to nft for a container 10.22.0.2/16, fd00:1::2/64 on network `mynet`.

use std::ffi::OsStr;

use cnibox_netfilter::nft::{
    Chain, ChainType, CtState, Family, Hook, HookPoint, Protocol, Rule, Statement, Verdict,
};
use cnibox_netfilter::{Batch, Choice, Engine, Owner, Position, TableRef};
use ipnetwork::IpNetwork;

use crate::common::{engine, in_netns, run};
use crate::dump;

const NUMBERS: [u8; 4] = [1, 2, 7, 10];

/// Runs a script with nft.
fn nft(script: &str) {
    let file = std::env::temp_dir().join(format!(
        "cnibox-nft-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, script).unwrap();
    let name = file.to_string_lossy().into_owned();
    run("nft", &["-f", &name]);
    std::fs::remove_file(file).unwrap();
}

/// `nft -j list ruleset` without handles, which count up across flushes.
fn listing() -> String {
    let json = run("nft", &["-j", "list", "ruleset"]);
    let mut parts = json.split("\"handle\": ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "\"handle\": " + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn everything() -> (Vec<Vec<dump::Chain>>, Vec<Vec<dump::Rule>>, String, String) {
    let chains = NUMBERS.iter().map(|number| dump::chains(*number)).collect();
    let rules = NUMBERS.iter().map(|number| dump::rules(*number)).collect();
    (chains, rules, listing(), run("nft", &["list", "ruleset"]))
}

/// The batch writes what nft writes for the script.
fn writes_like(script: &'static str, batch: Batch) {
    in_netns(move || {
        nft(script);
        let wanted = everything();
        assert!(wanted.1.iter().any(|rules| !rules.is_empty()));
        run("nft", &["flush", "ruleset"]);
        engine().apply(&batch).unwrap();
        assert_eq!(wanted, everything());
    });
}

fn net(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

#[test]
fn masquerade_table() {
    let jump = |chain: &str| Verdict::Goto(chain.into()).into();
    let comment = "d23676b4f2d9fe04-f37378035343678b, net: mynet, if: eth0, id: cont1";
    let masq = |ip: &str, subnet: &str| {
        let statements =
            vec![Statement::source(net(ip)), Statement::not_destination(net(subnet)), Statement::Masquerade];
        Rule::new(statements).with_comment(comment)
    };
    let postrouting = Hook::new(ChainType::Nat, HookPoint::Postrouting, 100);
    let mut batch = Batch::new();
    batch
        .nft(Family::Inet, "cni_plugins_masquerade")
        .ensure_table(Some("Masquerading for plugins from github.com/containernetworking/plugins"))
        .ensure_chain(Chain::regular("masq_checks").with_comment(
            "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet",
        ))
        .ensure_chain(Chain::base("postrouting", postrouting))
        .append_rule(
            "postrouting",
            Rule::new(vec![Statement::destination(net("224.0.0.0/4")), Verdict::Return.into()]),
        )
        .append_rule(
            "postrouting",
            Rule::new(vec![Statement::destination(net("ff00::/8")), Verdict::Return.into()]),
        )
        .append_rule("postrouting", Rule::new(vec![jump("masq_checks")]))
        .append_rule("masq_checks", masq("10.22.0.2", "10.22.0.0/16"))
        .append_rule("masq_checks", masq("fd00:1::2", "fd00:1::/64"));
    writes_like(
        r#"
add table inet cni_plugins_masquerade { comment "Masquerading for plugins from github.com/containernetworking/plugins" ; }
add chain inet cni_plugins_masquerade masq_checks { comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet" ; }
add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100 ; }
add rule inet cni_plugins_masquerade postrouting ip daddr == 224.0.0.0/4  return
add rule inet cni_plugins_masquerade postrouting ip6 daddr == ff00::/8  return
add rule inet cni_plugins_masquerade postrouting goto masq_checks
add rule inet cni_plugins_masquerade masq_checks ip saddr == 10.22.0.2 ip daddr != 10.22.0.0/16 masquerade comment "d23676b4f2d9fe04-f37378035343678b, net: mynet, if: eth0, id: cont1"
add rule inet cni_plugins_masquerade masq_checks ip6 saddr == fd00:1::2 ip6 daddr != fd00:1::/64 masquerade comment "d23676b4f2d9fe04-f37378035343678b, net: mynet, if: eth0, id: cont1"
"#,
        batch,
    );
}

fn hostport_chains(batch: &mut Batch, family: Family) {
    let nat = |point, priority| Hook::new(ChainType::Nat, point, priority);
    let entry = || Rule::new(vec![Statement::DestinationLocal, Verdict::Jump("hostports_all".into()).into()]);
    batch
        .nft(family, "cni_hostport")
        .ensure_table(Some("CNI portmap plugin"))
        .ensure_chain(Chain::regular("hostports"))
        .ensure_chain(Chain::regular("hostip_hostports"))
        .ensure_chain(Chain::regular("hostports_all"))
        .flush_chain("hostports_all")
        .append_rule("hostports_all", Rule::new(vec![Verdict::Jump("hostip_hostports".into()).into()]))
        .append_rule("hostports_all", Rule::new(vec![Verdict::Jump("hostports".into()).into()]))
        .ensure_chain(Chain::base("prerouting", nat(HookPoint::Prerouting, -100)))
        .append_rule("prerouting", entry())
        .ensure_chain(Chain::base("output", nat(HookPoint::Output, -100)))
        .append_rule("output", entry())
        .ensure_chain(Chain::base("masquerading", nat(HookPoint::Postrouting, 100)));
}

#[test]
fn hostport_tables() {
    let forward = |host: Option<&str>, protocol, port, to: &str| {
        let mut statements: Vec<_> = host.map(|ip| Statement::destination(net(ip))).into_iter().collect();
        statements
            .extend([Statement::destination_port(protocol, port), Statement::Dnat(to.parse().unwrap())]);
        Rule::new(statements).with_comment("cont1")
    };
    let masquerade = |from: &str, to: &str| {
        let statements =
            vec![Statement::source(net(from)), Statement::destination(net(to)), Statement::Masquerade];
        Rule::new(statements).with_comment("cont1")
    };
    let all = |from: &str| {
        Rule::new(vec![Statement::source(net(from)), Statement::Masquerade]).with_comment("cont1")
    };
    let mut batch = Batch::new();
    hostport_chains(&mut batch, Family::Ip);
    hostport_chains(&mut batch, Family::Ip6);
    batch
        .nft(Family::Ip, "cni_hostport")
        .append_rule("hostports", forward(None, Protocol::Tcp, 8080, "10.22.0.2:80"))
        .append_rule("hostports", forward(Some("10.22.0.1"), Protocol::Udp, 8081, "10.22.0.2:81"))
        .append_rule("hostports", forward(None, Protocol::Sctp, 8082, "10.22.0.2:82"))
        .append_rule("masquerading", masquerade("10.22.0.2", "10.22.0.2"))
        .append_rule("masquerading", masquerade("127.0.0.1", "10.22.0.2"))
        .append_rule("masquerading", all("0.0.0.0/0"));
    batch
        .nft(Family::Ip6, "cni_hostport")
        .append_rule("hostports", forward(Some("fd00:1::1"), Protocol::Tcp, 8080, "[fd00:1::2]:80"))
        .append_rule("masquerading", masquerade("fd00:1::2", "fd00:1::2"))
        .append_rule("masquerading", all("::/0"));
    writes_like(HOSTPORT, batch);
}

const HOSTPORT: &str = r#"
add table ip cni_hostport { comment "CNI portmap plugin" ; }
add chain ip cni_hostport hostports
add chain ip cni_hostport hostip_hostports
add chain ip cni_hostport hostports_all
flush chain ip cni_hostport hostports_all
add rule ip cni_hostport hostports_all jump hostip_hostports
add rule ip cni_hostport hostports_all jump hostports
add chain ip cni_hostport prerouting { type nat hook prerouting priority -100 ; }
add rule ip cni_hostport prerouting fib daddr type local jump hostports_all
add chain ip cni_hostport output { type nat hook output priority -100 ; }
add rule ip cni_hostport output fib daddr type local jump hostports_all
add chain ip cni_hostport masquerading { type nat hook postrouting priority 100 ; }
add rule ip cni_hostport hostports tcp dport 8080 dnat to 10.22.0.2:80 comment "cont1"
add rule ip cni_hostport hostports ip daddr 10.22.0.1 udp dport 8081 dnat to 10.22.0.2:81 comment "cont1"
add rule ip cni_hostport hostports sctp dport 8082 dnat to 10.22.0.2:82 comment "cont1"
add rule ip cni_hostport masquerading ip saddr 10.22.0.2 ip daddr 10.22.0.2 masquerade comment "cont1"
add rule ip cni_hostport masquerading ip saddr 127.0.0.1 ip daddr 10.22.0.2 masquerade comment "cont1"
add rule ip cni_hostport masquerading ip saddr 0.0.0.0/0 masquerade comment "cont1"
add table ip6 cni_hostport { comment "CNI portmap plugin" ; }
add chain ip6 cni_hostport hostports
add chain ip6 cni_hostport hostip_hostports
add chain ip6 cni_hostport hostports_all
flush chain ip6 cni_hostport hostports_all
add rule ip6 cni_hostport hostports_all jump hostip_hostports
add rule ip6 cni_hostport hostports_all jump hostports
add chain ip6 cni_hostport prerouting { type nat hook prerouting priority -100 ; }
add rule ip6 cni_hostport prerouting fib daddr type local jump hostports_all
add chain ip6 cni_hostport output { type nat hook output priority -100 ; }
add rule ip6 cni_hostport output fib daddr type local jump hostports_all
add chain ip6 cni_hostport masquerading { type nat hook postrouting priority 100 ; }
add rule ip6 cni_hostport hostports ip6 daddr fd00:1::1 tcp dport 8080 dnat to [fd00:1::2]:80 comment "cont1"
add rule ip6 cni_hostport masquerading ip6 saddr fd00:1::2 ip6 daddr fd00:1::2 masquerade comment "cont1"
add rule ip6 cni_hostport masquerading ip6 saddr ::/0 masquerade comment "cont1"
"#;

#[test]
fn spoof_check_table() {
    const IFACE: &str = "cni-br-iface-cont1-eth0";
    const MAC: &str = "cni-br-iface-cont1-eth0-mac";
    let rule = |statements| Rule::new(statements).with_comment("macspoofchk-cont1-eth0");
    let hook = Hook::accept(ChainType::Filter, HookPoint::Prerouting, -300);
    let mut batch = Batch::new();
    batch
        .nft(Family::Bridge, "nat")
        .ensure_table(None)
        .ensure_chain(Chain::base("PREROUTING", hook))
        .ensure_chain(Chain::regular(IFACE))
        .ensure_chain(Chain::regular(MAC))
        .append_rule(
            "PREROUTING",
            rule(vec![Statement::in_interface("veth4e97ba89"), Verdict::Jump(IFACE.into()).into()]),
        )
        .append_rule(IFACE, rule(vec![Verdict::Jump(MAC.into()).into()]))
        .append_rule(
            MAC,
            rule(vec![Statement::ether_source([0x2e, 0xaa, 0xd5, 0x2b, 0xfd, 0xb7]), Verdict::Return.into()]),
        )
        .append_rule(MAC, rule(vec![Verdict::Drop.into()]));
    writes_like(
        r#"
add table bridge nat
add chain bridge nat PREROUTING { type filter hook prerouting priority -300 ; policy accept ; }
add chain bridge nat cni-br-iface-cont1-eth0
add chain bridge nat cni-br-iface-cont1-eth0-mac
add rule bridge nat PREROUTING iifname == "veth4e97ba89" jump cni-br-iface-cont1-eth0 comment "macspoofchk-cont1-eth0"
add rule bridge nat cni-br-iface-cont1-eth0 jump cni-br-iface-cont1-eth0-mac comment "macspoofchk-cont1-eth0"
add rule bridge nat cni-br-iface-cont1-eth0-mac ether saddr == 2e:aa:d5:2b:fd:b7 return comment "macspoofchk-cont1-eth0"
add rule bridge nat cni-br-iface-cont1-eth0-mac drop comment "macspoofchk-cont1-eth0"
"#,
        batch,
    );
}

/// Conditions of users: those parsed here and those left to nft give the same rules.
#[test]
fn conditions_of_users() {
    const CONDITIONS: [&str; 8] = [
        "ip daddr != 10.9.0.0/24",
        "ip saddr 10.0.0.0/8 ip daddr 10.1.2.3",
        "iifname \"eth0\" oifname != lo",
        "iifname != eth1 ip saddr == 192.168.1.128/25",
        "tcp dport 80 ip saddr != 1.2.3.4",
        "fib daddr type local",
        "tcp dport { 80, 443 }",
        "ct state new ip saddr 10.0.0.1-10.0.0.9",
    ];
    in_netns(|| {
        let mut script = "add table ip t\nadd chain ip t c\n".to_owned();
        let mut batch = Batch::new();
        batch.nft(Family::Ip, "t").ensure_table(None).ensure_chain(Chain::regular("c"));
        for condition in &CONDITIONS[..6] {
            script += &format!("add rule ip t c {condition} drop\n");
            let words: Vec<String> = condition.split(' ').map(str::to_owned).collect();
            let mut statements = Statement::conditions(&words);
            assert!(
                !statements.iter().any(|statement| matches!(statement, Statement::Raw(_))),
                "{condition}"
            );
            statements.push(Verdict::Drop.into());
            batch.nft(Family::Ip, "t").append_rule("c", Rule::new(statements));
        }
        nft(&script);
        let wanted = everything();
        run("nft", &["flush", "ruleset"]);
        engine().apply(&batch).unwrap();
        assert_eq!(wanted, everything());

        for condition in CONDITIONS {
            nft(&format!("add rule ip t c {condition} drop comment \"x\"\n"));
        }
        let wanted = everything();
        let mut raw = Batch::new();
        raw.nft(Family::Ip, "t").delete_rules_where("c", Owner::Comment("x".into()));
        for condition in CONDITIONS {
            let statements = vec![Statement::Raw(vec![condition.to_owned()]), Verdict::Drop.into()];
            raw.nft(Family::Ip, "t").append_rule("c", Rule::new(statements).with_comment("x"));
        }
        engine().apply(&raw).unwrap();
        assert_eq!(wanted, everything());
    });
}

/// What is written as text for nft is what is written over netlink.
#[test]
fn text_and_netlink_agree() {
    let rules = || {
        [
            vec![Statement::source(net("10.0.0.0/9")), Statement::Counter, Verdict::Accept.into()],
            vec![Statement::EtherSource { address: [2, 0, 0, 0, 0, 1], negated: true }, Verdict::Drop.into()],
            vec![
                Statement::OutInterface { name: "eth0".into(), negated: true },
                Verdict::Jump("own".into()).into(),
            ],
            vec![
                Statement::DestinationPort { protocol: Protocol::Tcp, port: 1, negated: true },
                Verdict::Return.into(),
            ],
            vec![Statement::ConntrackState(CtState::RELATED_ESTABLISHED), Verdict::Accept.into()],
        ]
    };
    in_netns(move || {
        let mut engine = engine();
        for (family, index) in
            [(Family::Ip, 0), (Family::Bridge, 1), (Family::Inet, 2), (Family::Ip6, 3), (Family::Inet, 4)]
        {
            let statements = rules()[index].clone();
            let batch = |raw: bool| {
                let rule = Rule::new(statements.clone()).with_comment("some text");
                let last = if raw { Statement::Raw(vec!["counter".into()]) } else { Statement::Counter };
                let mut batch = Batch::new();
                batch
                    .nft(family, "t")
                    .ensure_table(Some("about t"))
                    .ensure_chain(Chain::regular("own").with_comment("about own"))
                    .ensure_chain(Chain::base("base", Hook::accept(ChainType::Filter, HookPoint::Input, 10)))
                    .append_rule("base", rule)
                    .append_rule("base", Rule::new(vec![last]));
                batch
            };
            engine.apply(&batch(false)).unwrap();
            let wanted = everything();
            run("nft", &["flush", "ruleset"]);
            engine.apply(&batch(true)).unwrap();
            assert_eq!(wanted, everything());
            run("nft", &["flush", "ruleset"]);
        }
    });
}

#[test]
fn rules_are_found_by_comment_and_ensured_once() {
    in_netns(|| {
        let table = TableRef::Nft(Family::Ip, "t".into());
        let rule = |ip: &str, comment: &str| {
            Rule::new(vec![Statement::source(net(ip)), Statement::Masquerade]).with_comment(comment)
        };
        let mut batch = Batch::new();
        batch
            .nft(Family::Ip, "t")
            .ensure_table(None)
            .ensure_chain(Chain::base("post", Hook::new(ChainType::Nat, HookPoint::Postrouting, 100)))
            .ensure_rule("post", rule("10.0.0.1", "one-a"), Position::Tail)
            .ensure_rule("post", rule("10.0.0.1", "two-a"), Position::Tail)
            .ensure_rule("post", rule("10.0.0.2", "one-b"), Position::Head);
        let mut engine = engine();
        engine.apply(&batch).unwrap();
        engine.apply(&batch).unwrap();
        let found = engine.rules(&table, "post").unwrap();
        let comments: Vec<_> = found.iter().filter_map(|rule| rule.comment()).collect();
        assert_eq!(comments, ["one-b", "one-a", "two-a"]);
        let mut delete = Batch::new();
        delete
            .nft(Family::Ip, "t")
            .delete_rules_where("post", Owner::CommentPrefix("one-".into()))
            .delete_found("post", found[2].id.clone());
        engine.apply(&delete).unwrap();
        assert!(engine.rules(&table, "post").unwrap().is_empty());
    });
}

/// Flags and ranges make another rule of it.
#[test]
fn a_dnat_with_more_to_it_is_somebody_elses() {
    for (family, to) in [(Family::Ip, "10.22.0.2:80"), (Family::Ip6, "[fd00:1::2]:80")] {
        in_netns(move || {
            let table = TableRef::Nft(family, "t".into());
            nft(&format!(
                "add table {table}\nadd chain {table} c {{ type nat hook prerouting priority -100 ; }}"
            ));
            let port = Statement::destination_port(Protocol::Tcp, 8080);
            let own = || Rule::new(vec![port.clone(), Statement::Dnat(to.parse().unwrap())]);
            for more in ["random", "fully-random", "persistent", "random,persistent"] {
                nft(&format!("add rule {table} c tcp dport 8080 dnat to {to} {more}"));
            }
            nft(&format!("add rule {table} c tcp dport 8080 dnat to {to}-90"));
            let mut engine = engine();
            let mut ensure = Batch::new();
            ensure.nft(family, "t").ensure_rule("c", own(), Position::Tail);
            engine.apply(&ensure).unwrap();
            engine.apply(&ensure).unwrap();
            assert_eq!(engine.rules(&table, "c").unwrap().len(), 6);
            let mut delete = Batch::new();
            delete.nft(family, "t").delete_rule("c", own());
            engine.apply(&delete).unwrap();
            let left = engine.rules(&table, "c").unwrap();
            assert_eq!((left.len(), left.iter().filter(|rule| rule.nft().is_some()).count()), (5, 0));
        });
    }
}

/// User data of the kernel ends at 256 bytes.
#[test]
fn comments_are_as_long_as_the_kernel_holds() {
    in_netns(|| {
        let table = TableRef::Nft(Family::Ip, "t".into());
        let batch = |comment: &str| {
            let mut batch = Batch::new();
            let rule = Rule::new(vec![Verdict::Accept.into()]).with_comment(comment);
            batch
                .nft(Family::Ip, "t")
                .ensure_table(Some(comment))
                .ensure_chain(Chain::regular("c").with_comment(comment))
                .ensure_rule("c", rule, Position::Tail);
            batch
        };
        let (long, longer) = ("x".repeat(253), "x".repeat(254));
        let mut engine = engine();
        let error = engine.apply(&batch(&longer)).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid comment {longer:?}"));
        engine.apply(&batch(&long)).unwrap();
        assert_eq!(engine.rules(&table, "c").unwrap()[0].comment(), Some(long.as_str()));
    });
}

/// Deleting what is not there starts no nft, which the host may not have.
#[test]
fn nothing_to_do_needs_no_tool() {
    in_netns(|| {
        let rule = Rule::new(vec![Statement::Raw(vec!["counter".into()])]);
        let mut batch = Batch::new();
        batch.nft(Family::Ip, "t").delete_rule("c", rule);
        Engine::open(Choice::Netlink, OsStr::new("/nonexistent")).apply(&batch).unwrap();
    });
}
