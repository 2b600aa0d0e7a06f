// SPDX-License-Identifier: Apache-2.0
//! Many calls at once, among Go plugins and people's own iptables and nft commands: no error, no address twice, no
//! rule lost.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use cnibox_testkit::{Process, Sandbox, sandbox, skip};
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::fixture::{Answer, Call, Side, Target, World, install};
use crate::lacking::{Host, LEGACY_TOOLS, legacy_rules};
use crate::networks::{self, Network};
use crate::report::{Tally, rounds, sides};

/// Runs `work` for every item at once, each in its own thread; they are in the sandbox, too.
fn at_once<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| work(item))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread of the crowd")).collect()
    })
}

/// A member of the crowd: its calls need nothing of the sandbox but its namespaces, which threads inherit.
struct Member {
    target: Target,
    network: Network,
    side: Side,
    /// The folders with tools, where they are others than the machine's.
    path: Option<String>,
    /// A command to run plugins under.
    under: Vec<String>,
}

impl Member {
    /// A container of its own in a network.
    fn new(net: &Sandbox, network: Network, side: Side) -> Self {
        Self { target: Target::of(&net.container()), network, side, path: None, under: Vec::new() }
    }

    fn call(&self, index: usize, verb: &str, prev: &Value) -> Answer {
        Call {
            side: self.side,
            plugin: self.network.kind(index).to_owned(),
            env: self.path.iter().map(|path| ("PATH".to_owned(), path.clone())).collect(),
            stdin: self.network.conf(index, prev).to_string(),
            under: self.under.clone(),
        }
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &self.target.id)
        .env("CNI_NETNS", &self.target.netns)
        .env("CNI_IFNAME", &self.target.ifname)
        .run()
    }

    fn chain(&self, verb: &str, result: &Value) -> Result<Value, Answer> {
        let mut order: Vec<_> = (0..self.network.plugins.len()).collect();
        if verb == "DEL" {
            order.reverse();
        }
        let mut prev = result.clone();
        for index in order {
            let answer = self.call(index, verb, &prev);
            if !answer.ok() {
                return Err(answer);
            }
            if verb == "ADD" {
                prev = answer.json();
            }
        }
        Ok(prev)
    }
}

/// Somebody who changes rules of their own all the time.
fn busybody() -> Process {
    let script = "iptables -w -t nat -N MINE; nft add table inet mine; nft 'add chain inet mine c'; while :; do \
         iptables -w -t nat -A MINE -s 192.0.2.7 -j RETURN || echo lost >>/run/testkit/busybody; \
         iptables -w -t nat -D MINE -s 192.0.2.7 -j RETURN || echo lost >>/run/testkit/busybody; \
         nft add rule inet mine c ip saddr 192.0.2.7 accept; nft flush chain inet mine c; sleep 0.01; done";
    Process::start(Command::new("sh").args(["-c", script])).expect("start a shell")
}

fn crowd(net: &Sandbox, size: usize, side: Side, with_go: bool) -> Vec<Member> {
    // Two networks, and a third one that shares its bridge with the first.
    let mut shared = networks::v4();
    "net-shared".clone_into(&mut shared.name);
    shared.plugins[0]["ipam"]["ranges"] =
        json!([[{"subnet": "10.61.0.0/16", "rangeStart": "10.61.200.0", "rangeEnd": "10.61.254.0"}]]);
    shared.plugins[0]["ipam"]["ranges"][0][0]["gateway"] = json!("10.61.0.1");
    let mut first = networks::v4();
    first.plugins[0]["ipam"]["ranges"][0][0]["rangeEnd"] = json!("10.61.100.0");
    let kinds = [first, networks::dual(), shared];
    (0..size)
        .map(|number| {
            let network = kinds[number % kinds.len()].clone().with_ports(10_000 + 2 * number);
            let side = if with_go && number % 5 == 4 { Side::Go } else { side };
            Member::new(net, network, side)
        })
        .collect()
}

fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().expect("ips");
    ips.iter().map(|ip| ip["address"].as_str().expect("an address").to_owned()).collect()
}

/// The crowd comes, half of it goes while another half comes, and all go. What went wrong with `side`: ours do not answer
/// for errors of the Go plugins among them.
fn rush(net: &Sandbox, size: usize, side: Side, with_go: bool) -> String {
    install();
    let members = crowd(net, size, side, with_go);
    let mut problem = String::new();
    let busybody = busybody();
    let (first, second) = members.split_at(size / 2);
    let mut complain = |member: &Member, what: &str, answer: &Answer| {
        if member.side == side {
            problem.push_str(&format!(
                "{what} of {} on {}: {answer:?}\n",
                member.target.id, member.network.name
            ));
        }
    };
    let add = |member: &Member| member.chain("ADD", &Value::Null);
    // The Go plugin gives a gateway's bridge the MAC that it once saw, whatever others have answered with meanwhile: where
    // it takes part the bridges have their gateways before.
    let (ahead, first) = first.split_at(if with_go { 3 } else { 0 });
    let mut added: Vec<_> = ahead.iter().map(add).collect();
    added.extend(at_once(first, add));
    let mut living = Vec::new();
    for (member, outcome) in ahead.iter().chain(first).zip(added) {
        match outcome {
            Ok(result) => living.push((member, result)),
            Err(answer) => complain(member, "ADD", &answer),
        }
    }
    // Half go while the second half come.
    let (leaving, staying) = living.split_at(living.len() / 2);
    enum Move<'a> {
        Out(&'a (&'a Member, Value)),
        In(&'a Member),
    }
    let moves: Vec<_> = leaving.iter().map(Move::Out).chain(second.iter().map(Move::In)).collect();
    let moved = at_once(&moves, |one| match one {
        Move::Out((member, result)) => member.chain("DEL", result),
        Move::In(member) => add(member),
    });
    let mut rest: Vec<_> = staying.to_vec();
    for (one, outcome) in moves.iter().zip(moved) {
        match (one, outcome) {
            (Move::In(member), Ok(result)) => rest.push((member, result)),
            (Move::In(member), Err(answer)) => complain(member, "ADD", &answer),
            (Move::Out(_), Ok(_)) => {}
            (Move::Out((member, _)), Err(answer)) => complain(member, "DEL", &answer),
        }
    }
    let all: Vec<_> = rest.iter().flat_map(|(_, result)| addresses(result)).collect();
    let different: BTreeSet<_> = all.iter().collect();
    for (member, outcome) in rest
        .iter()
        .map(|(member, _)| member)
        .zip(at_once(&rest, |(member, result)| member.chain("CHECK", result)))
    {
        if let Err(answer) = outcome {
            complain(member, "CHECK", &answer);
        }
    }
    for ((member, _), outcome) in
        rest.iter().zip(at_once(&rest, |(member, result)| member.chain("DEL", result)))
    {
        if let Err(answer) = outcome {
            complain(member, "DEL", &answer);
        }
    }
    drop(busybody);
    if different.len() != all.len() {
        problem.push_str(&format!("{} addresses, {} different ones\n", all.len(), different.len()));
    }
    if std::fs::exists("/run/testkit/busybody").is_ok_and(|lost| lost) {
        problem.push_str("somebody else's rules were lost\n");
    }
    problem.push_str(&remains(net, &members, side));
    problem
}

/// What those of `side` in the crowd left: a line with a member's name, a port of its, or an address.
fn remains(net: &Sandbox, members: &[Member], side: Side) -> String {
    // Links of a namespace are gone a moment after it.
    std::thread::sleep(Duration::from_millis(100));
    let snapshot = net
        .snapshot()
        .without("last_reserved_ip")
        .without("/run/cnibox/host-local")
        .without("/run/cnibox/inventory");
    let those: Vec<_> = members.iter().filter(|member| member.side == side).collect();
    let text = format!("{snapshot:?}");
    text.lines()
        .filter(|line| {
            those.iter().any(|member| {
                line.contains(&format!("{}\"", member.target.id))
                    || line.contains(&format!("{}\\r", member.target.id))
                    || line.contains(&format!("{}:", member.target.id))
            })
        })
        .map(|line| format!("left: {line}\n"))
        .collect()
}

#[test]
fn a_crowd_of_calls_at_once_gets_along() {
    let with_go = Side::Go.dir().is_some();
    if !with_go {
        skip("CNIBOX_REFERENCE names no directory with the Go plugins: the crowd is ours alone");
    }
    let size = rounds(40, 100);
    for side in sides() {
        let mut tally = Tally::default();
        for turn in 0..rounds(2, 4) {
            sandbox(|net| {
                let with_go = side == Side::Ours && with_go && turn % 2 == 1;
                tally.count(&format!("{size} calls at once, turn {turn}"), &rush(net, size, side, with_go))
            });
        }
        tally.close("a crowd of ADD and DEL at once, with Go plugins, iptables and nft running", side);
    }
}

#[test]
fn first_comers_race_for_one_bridge() {
    for side in sides() {
        let mut tally = Tally::default();
        for turn in 0..rounds(6, 40) {
            let network = if turn % 2 == 0 { networks::dual() } else { networks::layer2() };
            sandbox(|net| tally.count(&format!("8 on {}", network.label), &race(net, &network, side, &[])));
        }
        tally.close("eight first ADDs race for a bridge that is not there", side);
    }
}

/// All of them look before one makes it: whatever they tell the kernel waits far longer than they take to start.
#[test]
fn first_comers_who_have_all_looked_make_one_bridge() {
    let inject = "inject=sendto,sendmsg:delay_enter=50000";
    let under = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=sendto,sendmsg", "-e", inject];
    sandbox(|net| assert_eq!(race(net, &networks::layer2(), Side::Ours, &under), ""));
}

/// The tools lock nothing between a look and a change, so that all want to make the same chains.
#[test]
fn first_comers_race_for_the_chains_of_legacy_iptables() {
    sandbox(|net| {
        install();
        let Some(host) = Host::with(&LEGACY_TOOLS) else { return skip("no xtables-legacy-multi") };
        let member = |number: usize| Member {
            path: Some(host.path.clone()),
            ..Member::new(net, networks::dual().with_ports(10_000 + 2 * number), Side::Ours)
        };
        let members: Vec<_> = (0..6).map(member).collect();
        let results = at_once(&members, |member| member.chain("ADD", &Value::Null).expect("ADD"));
        let living: Vec<_> = members.iter().zip(results).collect();
        at_once(&living, |(member, result)| member.chain("CHECK", result).expect("CHECK"));
        at_once(&living, |(member, result)| member.chain("DEL", result).expect("DEL"));
        let left = legacy_rules(net);
        for trace in ["CNI-DN-", "10.62.0.", "fd00:62::"] {
            assert!(!left.contains(trace), "{left}");
        }
    });
}

/// What goes wrong when eight containers want a bridge that is not there.
fn race(net: &Sandbox, network: &Network, side: Side, under: &[&str]) -> String {
    install();
    let members: Vec<_> = (0..8)
        .map(|number| {
            let has_ports = !network.ports.is_null();
            let network = network.clone();
            let network = if has_ports { network.with_ports(10_000 + 2 * number) } else { network };
            let under = under.iter().map(|&word| word.to_owned()).collect();
            Member { under, ..Member::new(net, network, side) }
        })
        .collect();
    let mut problem = String::new();
    let mut living = Vec::new();
    for (member, outcome) in members.iter().zip(at_once(&members, |member| member.chain("ADD", &Value::Null)))
    {
        match outcome {
            Ok(result) => living.push((member, result)),
            Err(answer) => problem.push_str(&format!("ADD: {answer:?}\n")),
        }
    }
    // Each has been told the MAC that the bridge keeps.
    for outcome in at_once(&living, |(member, result)| member.chain("CHECK", result)) {
        if let Err(answer) = outcome {
            problem.push_str(&format!("CHECK: {answer:?}\n"));
        }
    }
    let bridge = network.plugins[0]["bridge"].as_str().expect("a bridge");
    let ports = net.run("ip", &["-o", "link", "show", "master", bridge]).lines().count();
    if ports != members.len() {
        problem.push_str(&format!("{ports} ports for {} containers\n", members.len()));
    }
    problem
}

/// What first comers see of the bridge before its gateway's address is there must stay.
#[test]
fn a_gateways_bridge_keeps_its_mac_from_the_start() {
    sandbox(|net| {
        install();
        let mut network = networks::v4();
        // The gateway has the only address.
        network.plugins[0]["ipam"]["ranges"][0][0]["rangeEnd"] = json!("10.61.0.1");
        let member = Member::new(net, network, Side::Ours);
        member
            .chain("ADD", &Value::Null)
            .expect_err("an ADD that makes the bridge and fails at its addresses");
        let mac = || {
            net.run("ip", &["-brief", "link", "show", "br-v4"]).split_whitespace().nth(2).map(str::to_owned)
        };
        let made = mac();
        assert!(made.is_some(), "no MAC of br-v4");
        net.run("ip", &["link", "add", "port", "type", "veth", "peer", "name", "peer"]);
        net.run("ip", &["link", "set", "port", "master", "br-v4", "up"]);
        assert_eq!(mac(), made);
    });
}

/// The bridge takes its lowest port's then, whoever brings it; CHECK asks for no other.
#[test]
fn a_bridge_without_gateway_may_take_another_ports_mac() {
    sandbox(|net| {
        install();
        let network = networks::layer2();
        let bridge = network.plugins[0]["bridge"].as_str().expect("a bridge").to_owned();
        let member = Member::new(net, network, Side::Ours);
        let result = member.chain("ADD", &Value::Null).expect("ADD");
        net.run("ip", &["link", "add", "port", "type", "veth", "peer", "name", "peer"]);
        net.run("ip", &["link", "set", "port", "address", "02:00:00:00:00:00"]);
        net.run("ip", &["link", "set", "port", "master", &bridge]);
        assert!(net.run("ip", &["link", "show", &bridge]).contains("02:00:00:00:00:00"));
        member.chain("CHECK", &result).expect("CHECK");
    });
}

#[test]
fn a_lock_that_is_never_given_back_is_an_error_and_no_hang() {
    sandbox(|net| {
        let world = World::new(net, networks::v4(), Side::Ours);
        let before = world.host();
        let file = File::open("/run/cni/net-v4/lock").expect("host-local's lock");
        let held = Flock::lock(file, FlockArg::LockExclusive).expect("lock");
        let target = Target::of(&net.container());
        let started = Instant::now();
        let answer = world.call(0, "ADD", &target, &Value::Null).run();
        assert!(started.elapsed() < Duration::from_secs(59), "{:?}", started.elapsed());
        assert_eq!(answer.json()["code"], 11, "{answer:?}");
        drop(held);
        let left = world.left(&before, &target);
        assert!(left.is_empty(), "{left}");
        let problem = world.next_works(&before, &target);
        assert!(problem.is_empty(), "{problem}");
    });
}
