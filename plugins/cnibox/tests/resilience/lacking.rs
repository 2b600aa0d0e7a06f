// SPDX-License-Identifier: Apache-2.0
//! Hosts that lack a part of the packet filter: what needs it not works, and leaves nothing.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cnibox_testkit::{Sandbox, sandbox, skip};
use serde_json::{Value, json};

use crate::fixture::{Answer, Side, Target, World};
use crate::networks::{self, Network};

/// Runs a plugin in a kernel that knows no `NETLINK_NETFILTER`, as one without nf_tables and connection tracking does
/// not: a seccomp filter refuses the socket in the same words.
const WITHOUT_NETFILTER: &str = r#"
import ctypes, os, struct, sys
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
AF_NETLINK, NETLINK_NETFILTER, EPROTONOSUPPORT = 16, 12, 93
ERRNO, ALLOW = 0x50000 | EPROTONOSUPPORT, 0x7fff0000
code = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 5, SOCKET), (LOAD, 0, 0, 16), (JUMP_IF_EQUAL, 0, 3, AF_NETLINK),
        (LOAD, 0, 0, 32), (JUMP_IF_EQUAL, 0, 1, NETLINK_NETFILTER), (RETURN, 0, 0, ERRNO), (RETURN, 0, 0, ALLOW)]
program = b"".join(struct.pack("=HBBI", *line) for line in code)
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(Program(len(code), ctypes.addressof(buffer)))) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Everything of both families.
pub(crate) const LEGACY_TOOLS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];

/// A host on which `iptables` is the legacy flavour.
pub(crate) struct Host {
    /// The only folder with tools.
    pub(crate) path: String,
    /// What plugins run under.
    under: Vec<String>,
}

impl Host {
    /// One with these tools; `None` where there are none to link to.
    pub(crate) fn with(tools: &[&str]) -> Option<Self> {
        let legacy = tool_of_machine("xtables-legacy-multi")?;
        let dir = Path::new("/run/testkit/tools");
        std::fs::create_dir_all(dir).expect("make a folder for tools");
        for tool in tools {
            let program = if *tool == "nft" { tool_of_machine(tool)? } else { legacy.clone() };
            symlink(program, dir.join(tool)).expect("link a tool");
        }
        Some(Self { path: dir.display().to_string(), under: Vec::new() })
    }

    /// The same in a kernel without nf_tables.
    fn without_netfilter(mut self) -> Self {
        // What is called python3 may be a script that needs other tools.
        let told = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let python = String::from_utf8(told.expect("start python3").stdout).expect("a path");
        self.under = [python.trim(), "-c", WITHOUT_NETFILTER].map(str::to_owned).to_vec();
        self
    }

    /// One verb of the whole chain.
    fn run(&self, world: &World<'_>, verb: &str, target: &Target, prev: &Value) -> Result<Value, Answer> {
        let mut order: Vec<_> = (0..world.network.plugins.len()).collect();
        if verb == "DEL" {
            order.reverse();
        }
        let mut result = prev.clone();
        for index in order {
            let mut call = world.call(index, verb, target, &result).env("PATH", &self.path);
            if verb == "GC" {
                let mut conf: Value = serde_json::from_str(&call.stdin).expect("our own JSON");
                let neighbour = &world.neighbour;
                conf["cni.dev/valid-attachments"] =
                    json!([{"containerID": neighbour.id, "ifname": neighbour.ifname}]);
                call.stdin = conf.to_string();
            }
            call.under = self.under.clone();
            let answer = call.run();
            if !answer.ok() {
                return Err(answer);
            }
            if verb == "ADD" {
                result = answer.json();
            }
        }
        Ok(result)
    }
}

/// Where the machine has a tool.
fn tool_of_machine(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists())
}

/// The rules that the legacy tools see.
pub(crate) fn legacy_rules(net: &Sandbox) -> String {
    let script = "for family in iptables ip6tables; do xtables-legacy-multi $family-save; done \
         | sed '/^#/d; /^:/s/ \\[.*//'";
    net.run("sh", &["-ec", script])
}

/// A container comes and goes, and another one is collected.
fn come_and_go(network: &Network, tools: &[&str], lacking: fn(Host) -> Host) {
    sandbox(|net| {
        let world = World::new(net, network.clone(), Side::Ours);
        let Some(host) = Host::with(tools) else { return skip("no xtables-legacy-multi") };
        let host = lacking(host);
        // What is shared comes with the first container and stays.
        let first = Target::of(&net.container());
        let run = |verb: &str, target: &Target, prev: &Value| {
            let outcome = host.run(&world, verb, target, prev);
            outcome.unwrap_or_else(|answer| panic!("{verb} on {}: {answer:?}", network.label))
        };
        let result = run("ADD", &first, &Value::Null);
        run("DEL", &first, &result);
        let before = (world.host(), legacy_rules(net));
        for (verb, prev) in [("DEL", true), ("DEL", false), ("GC", false)] {
            let target = Target::of(&net.container());
            let result = run("ADD", &target, &Value::Null);
            run("CHECK", &target, &result);
            run(verb, &target, if prev { &result } else { &Value::Null });
            let left = world.left_on_host(&before.0);
            assert!(left.is_empty(), "{} after {verb}: {left}", network.label);
            assert_eq!(legacy_rules(net), before.1, "{} after {verb}", network.label);
        }
    });
}

/// The bridge of a network and nothing behind it.
fn alone(mut network: Network) -> Network {
    network.plugins.truncate(1);
    network
}

#[test]
fn nobody_needs_ip6tables_for_ipv4() {
    let tools = ["iptables", "iptables-save", "iptables-restore"];
    for network in [alone(networks::v4()), networks::layer2()] {
        come_and_go(&network, &tools, |host| host);
    }
}

#[test]
fn nobody_needs_nf_tables_where_iptables_is_the_legacy_one() {
    for network in [networks::v4(), networks::dual(), networks::layer2(), networks::routed()] {
        come_and_go(&network, &LEGACY_TOOLS, Host::without_netfilter);
    }
}

/// What the host chose may be in either place, of which this kernel has but one.
#[test]
fn a_masquerade_that_is_gone_is_missed_without_nf_tables() {
    sandbox(|net| {
        let world = World::new(net, alone(networks::routed()), Side::Ours);
        let Some(host) = Host::with(&LEGACY_TOOLS) else { return skip("no xtables-legacy-multi") };
        let host = host.without_netfilter();
        let target = Target::of(&net.container());
        let result = host.run(&world, "ADD", &target, &Value::Null).expect("ADD");
        net.run("xtables-legacy-multi", &["iptables", "-t", "nat", "-F"]);
        let answer = host.run(&world, "CHECK", &target, &result).expect_err("the masquerade is gone");
        assert!(answer.stdout.contains("masquerade not found: rule "), "{answer:?}");
        host.run(&world, "DEL", &target, &result).expect("DEL");
    });
}

/// Between a look and a change somebody else makes the first of the chains that are wanted, each time.
#[test]
fn what_somebody_else_has_made_in_between_is_no_reason_to_fail() {
    sandbox(|net| {
        let world = World::new(net, networks::v4(), Side::Ours);
        let Some(host) = Host::with(&LEGACY_TOOLS) else { return skip("no xtables-legacy-multi") };
        let legacy = tool_of_machine("xtables-legacy-multi").expect("it was found before");
        let restore = Path::new(&host.path).join("iptables-restore");
        std::fs::remove_file(&restore).expect("unlink a tool");
        let script = format!(
            "#!/bin/bash\ninput=$(< /dev/stdin)\n[[ $input =~ \\*([a-z]+) ]]; table=${{BASH_REMATCH[1]}}\n\
             if [[ $input =~ -N\\ ([A-Za-z0-9-]+) ]]; then {0} iptables -t $table -N ${{BASH_REMATCH[1]}}; fi\n\
             {0} iptables-restore \"$@\" <<< \"$input\"\n",
            legacy.display()
        );
        std::fs::write(&restore, script).expect("write a tool");
        net.run("chmod", &["+x", &restore.display().to_string()]);
        let target = Target::of(&net.container());
        let result = host.run(&world, "ADD", &target, &Value::Null).expect("ADD");
        host.run(&world, "CHECK", &target, &result).expect("CHECK");
        host.run(&world, "DEL", &target, &result).expect("DEL");
    });
}

/// Asking legacy iptables makes the table, and with it hooks that every packet passes.
#[test]
fn nobody_makes_a_nat_table_to_remove_what_is_not_in_it() {
    sandbox(|net| {
        let world = World::new(net, networks::layer2(), Side::Ours);
        let Some(host) = Host::with(&LEGACY_TOOLS) else { return skip("no xtables-legacy-multi") };
        let target = Target::of(&net.container());
        let result = host.run(&world, "ADD", &target, &Value::Null).expect("ADD");
        // Nor is it an error that the tool would not work.
        for tool in LEGACY_TOOLS {
            let file = format!("{}/{tool}", host.path);
            std::fs::remove_file(&file).expect("unlink a tool");
            let broken = Path::new(&host.path).join(format!("{tool}-legacy"));
            std::fs::write(&broken, "#!/bin/sh\nexit 4\n").expect("write a tool");
            net.run("chmod", &["+x", &broken.display().to_string()]);
            symlink(&broken, &file).expect("link a tool");
        }
        host.run(&world, "DEL", &target, &result).expect("DEL");
        host.run(&world, "GC", &target, &Value::Null).expect("GC");
        let tables = "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null || true";
        assert_eq!(net.run("sh", &["-c", tables]), "");
    });
}

/// As Go's plugins find out: by trying, not by looking for the file.
#[test]
fn an_iptables_that_cannot_be_used_leaves_the_choice_to_nft() {
    sandbox(|net| {
        let mut network = networks::v4();
        network.plugins.remove(1);
        network.plugins[1]["backend"] = Value::Null;
        let world = World::new(net, network, Side::Ours);
        let Some(host) = Host::with(&["nft"]) else { return skip("no nft") };
        let broken = "#!/bin/sh\necho \"iptables v1.8.9 (legacy): can't initialize iptables table \\`$2': \
             Table does not exist (do you need to insmod?)\" >&2\nexit 3\n";
        for tool in ["iptables", "ip6tables"] {
            let file = format!("{}/{tool}", host.path);
            std::fs::write(&file, broken).expect("write a tool");
            net.run("chmod", &["+x", &file]);
        }
        let target = Target::of(&net.container());
        let result = host.run(&world, "ADD", &target, &Value::Null).expect("ADD");
        let ruleset = net.run("nft", &["list", "ruleset"]);
        assert!(ruleset.contains("cni_plugins_masquerade") && ruleset.contains("cni_hostport"), "{ruleset}");
        host.run(&world, "DEL", &target, &result).expect("DEL");
    });
}

/// The tools write one family after the other: what the first has is taken back when the second refuses.
#[test]
fn masquerade_of_one_family_goes_when_the_other_refuses() {
    sandbox(|net| {
        let network = alone(networks::dual());
        let world = World::new(net, network, Side::Ours);
        let Some(host) = Host::with(&LEGACY_TOOLS) else { return skip("no xtables-legacy-multi") };
        let first = Target::of(&net.container());
        let result = host.run(&world, "ADD", &first, &Value::Null).expect("ADD");
        host.run(&world, "DEL", &first, &result).expect("DEL");
        let before = (world.host(), legacy_rules(net));
        let restore = Path::new(&host.path).join("ip6tables-restore");
        std::fs::remove_file(&restore).expect("unlink a tool");
        std::fs::write(&restore, "#!/bin/sh\necho refused >&2\nexit 4\n").expect("write a tool");
        net.run("chmod", &["+x", &restore.display().to_string()]);
        let target = Target::of(&net.container());
        let answer = host.run(&world, "ADD", &target, &Value::Null).expect_err("IPv6 is refused");
        assert!(answer.stdout.contains("refused"), "{answer:?}");
        assert_eq!(legacy_rules(net), before.1);
        assert_eq!(world.left(&before.0, &target), "");
    });
}
