// SPDX-License-Identifier: Apache-2.0
//! DEL, GC and STATUS whatever has happened in between: what they were told before is gone or different.

use cnibox_testkit::sandbox;
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World, on_each, supported};
use crate::networks::{self, Network};
use crate::report::{Tally, sides};

/// What is different at DEL from what was at ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Nothing,
    NetnsDeleted,
    NetnsEmpty,
    NetnsHeldOpen,
    NoPrevResult,
    NoRuntimeConfig,
    NoPrevResultNorNetns,
    OtherSubnet,
    OtherBackend,
    NoPorts,
    NoMasquerade,
    NoSpoofCheck,
    NoInterface,
    AddressFlushed,
    NoMemory,
    NetnsHeldOpenNoMemory,
    IptablesEmptied,
}

const LOSSES: &[Loss] = &[
    Loss::Nothing,
    Loss::NetnsDeleted,
    Loss::NetnsEmpty,
    Loss::NetnsHeldOpen,
    Loss::NoPrevResult,
    Loss::NoRuntimeConfig,
    Loss::NoPrevResultNorNetns,
    Loss::OtherSubnet,
    Loss::OtherBackend,
    Loss::NoPorts,
    Loss::NoMasquerade,
    Loss::NoSpoofCheck,
    Loss::NoInterface,
    Loss::AddressFlushed,
    Loss::NoMemory,
    Loss::NetnsHeldOpenNoMemory,
    Loss::IptablesEmptied,
];

/// What DEL is told and finds after the loss: configuration, attachment, prevResult.
fn suffer(world: &World<'_>, target: &Target, result: &Value, loss: Loss) -> (Network, Target, Value) {
    let (mut network, mut target, mut prev) = (world.network.clone(), target.clone(), result.clone());
    let run = |args: &[&str]| world.net.run("ip", args);
    let in_pod = |command: &[&str]| {
        let mut args = vec!["netns", "exec", target.id.as_str()];
        args.extend(command);
        run(&args);
    };
    match loss {
        Loss::Nothing => {}
        Loss::NetnsDeleted => drop(run(&["netns", "del", &target.id])),
        Loss::NetnsHeldOpen | Loss::NetnsHeldOpenNoMemory => {
            held_open(world, &target, "3");
            if loss == Loss::NetnsHeldOpenNoMemory {
                let _ = std::fs::remove_dir_all("/run/cnibox");
            }
        }
        Loss::NetnsEmpty => target.netns = String::new(),
        Loss::NoPrevResult => prev = Value::Null,
        Loss::NoPrevResultNorNetns => {
            run(&["netns", "del", &target.id]);
            prev = Value::Null;
        }
        Loss::NoRuntimeConfig => network.ports = Value::Null,
        Loss::OtherSubnet => {
            let ipam = &mut network.interface()["ipam"];
            ipam["ranges"] = json!([[{"subnet": "10.99.0.0/24"}]]);
            ipam["addresses"] = json!([{"address": "10.99.0.9/24"}]);
        }
        Loss::OtherBackend => {
            let other = |now: &Value| if now == "nftables" { "iptables" } else { "nftables" };
            let main = network.interface();
            main["ipMasqBackend"] = json!(other(&main["ipMasqBackend"]));
            for plugin in network.plugins.iter_mut().filter(|plugin| plugin["type"] == "portmap") {
                plugin["backend"] = json!(other(&plugin["backend"]));
            }
        }
        Loss::NoPorts => {
            network.ports = Value::Null;
            for plugin in network.plugins.iter_mut().filter(|plugin| plugin["type"] == "portmap") {
                plugin.as_object_mut().expect("a plugin").remove("capabilities");
            }
        }
        Loss::NoMasquerade => network.interface()["ipMasq"] = json!(false),
        Loss::NoSpoofCheck => network.interface()["macspoofchk"] = json!(false),
        Loss::NoInterface => in_pod(&["ip", "link", "del", "eth0"]),
        Loss::AddressFlushed => in_pod(&["ip", "address", "flush", "dev", "eth0"]),
        Loss::NoMemory => drop(std::fs::remove_dir_all("/run/cnibox")),
        // Only the container's entry rules: somebody flushed and restored the chains that all share.
        Loss::IptablesEmptied => {
            let delete = format!(
                "iptables -t nat -S | grep -F '{}' | grep -v 'CNI-HOSTPORT-SETMARK' | sed 's/^-A/iptables -t nat -D/' | sh",
                target.id
            );
            world.net.run("sh", &["-c", &delete]);
        }
    }
    (network, target, prev)
}

/// ADD, loss, DEL twice; what is left.
fn lose(world: &World<'_>, before: &str, loss: Loss) -> String {
    let original = Target::of(&world.net.container());
    let result =
        world.add(&original).unwrap_or_else(|answer| panic!("ADD on {}: {answer:?}", world.network.label));
    let (network, target, prev) = suffer(world, &original, &result, loss);
    let later = world.with(network);
    let mut problem = String::new();
    for turn in ["first", "second"] {
        if let Err(answer) = later.del(&target, &prev) {
            problem.push_str(&format!("{turn} DEL: {answer:?}\n"));
        }
    }
    // An empty path says that there is no namespace any more, so what is inside is nobody's business.
    let inside = if loss == Loss::NetnsEmpty {
        Target { netns: String::new(), ..original.clone() }
    } else {
        original.clone()
    };
    let deleted = matches!(loss, Loss::NetnsDeleted | Loss::NoPrevResultNorNetns);
    if world.network.has_host_end() || !(deleted || loss == Loss::NetnsEmpty) {
        problem.push_str(&world.left(before, &inside));
        world.bury(&original);
        return problem;
    }
    // All of the interface is in the namespace, which the runtime deletes.
    world.net.run("sh", &["-c", &format!("ip netns del {} 2>/dev/null; true", original.id)]);
    problem.push_str(&world.left_but_devices(before));
    world.bury(&original);
    problem
}

#[test]
fn del_cleans_whatever_happened() {
    for side in sides() {
        let mut tally = Tally::default();
        lose_everything(networks::all(), side, &mut tally);
        tally.close("state or configuration lost between ADD and DEL", side);
    }
}

/// Every loss that makes a difference, on each of the networks.
pub(crate) fn lose_everything(networks: Vec<Network>, side: Side, tally: &mut Tally) {
    on_each(networks, side, |_, world| {
        for loss in LOSSES.iter().filter(|loss| makes_a_difference(world, **loss)) {
            let problem = lose(world, &without_memory(&world.host(), *loss), *loss);
            tally.count(&format!("{loss:?} on {}", world.network.label), &problem);
        }
    });
}

fn makes_a_difference(world: &World<'_>, loss: Loss) -> bool {
    let network = &world.network;
    let main = &network.plugins[network.main()];
    match loss {
        // The Go plugins remember nothing.
        Loss::NoMemory => world.side == Side::Ours,
        // The mark of the host's end is all there is.
        Loss::NetnsHeldOpenNoMemory => world.side == Side::Ours && network.has_host_end(),
        Loss::OtherSubnet => main["ipam"].is_object(),
        Loss::NoRuntimeConfig | Loss::NoPorts => !network.ports.is_null(),
        Loss::OtherBackend | Loss::NoMasquerade => main["ipMasq"] == true,
        Loss::NoSpoofCheck => main["macspoofchk"] == true,
        Loss::IptablesEmptied => main["ipMasq"] == true || !network.ports.is_null(),
        // Otherwise nobody but the process can reach the interface.
        Loss::NetnsHeldOpen => network.has_host_end(),
        Loss::AddressFlushed => main["ipam"].is_object(),
        Loss::Nothing
        | Loss::NetnsDeleted
        | Loss::NetnsEmpty
        | Loss::NoPrevResult
        | Loss::NoPrevResultNorNetns => true,
        // A device of the host is nobody's to delete.
        Loss::NoInterface => network.host != networks::DEVICES,
    }
}

/// The host after the memory is gone, the neighbour's included.
fn without_memory(before: &str, loss: Loss) -> String {
    if !matches!(loss, Loss::NoMemory | Loss::NetnsHeldOpenNoMemory) {
        return before.to_owned();
    }
    before.lines().filter(|line| !line.starts_with("/run/cnibox/")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn del_of_one_attachment_keeps_the_other_of_the_same_container() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks =
            [networks::v4(), networks::dual(), networks::native(), networks::stacked(), networks::tap()];
        let plain = |network: Network| Network { ports: Value::Null, ..network };
        on_each(networks.map(plain).to_vec(), side, |_, world| {
            tally.count(world.network.label, &two_attachments(world));
        });
        tally.close("two attachments of one container, DEL of one", side);
    }
}

fn two_attachments(world: &World<'_>) -> String {
    let before = world.host();
    let first = Target::of(&world.net.container());
    let second = Target { ifname: "net1".to_owned(), ..first.clone() };
    // Both default routes cannot be the container's.
    let mut plain = world.network.clone();
    plain.interface()["ipam"]["routes"] = json!([]);
    let world = world.with(plain);
    let one = world.add(&first).expect("ADD of the first");
    let alone = world.host();
    let two = world.add(&second).expect("ADD of the second");
    let mut problem = String::new();
    if let Err(answer) = world.del(&second, &two) {
        problem.push_str(&format!("DEL of the second: {answer:?}\n"));
    }
    problem.push_str(&world.left_on_host(&alone));
    if world.net.run("ip", &["netns", "exec", &second.id, "ip", "link"]).contains("net1") {
        problem.push_str("net1 is still there\n");
    }
    if let Err(answer) = world.check(&first, &one) {
        problem.push_str(&format!("CHECK of the first: {answer:?}\n"));
    }
    if let Err(answer) = world.del(&first, &one) {
        problem.push_str(&format!("DEL of the first: {answer:?}\n"));
    }
    problem + &world.left(&before, &first)
}

/// Attachments that the reference's names cannot tell apart: of network and container it hashes what they make when they are
/// joined, native rules name the container only, and a spoof check joins container and interface.
#[test]
fn del_of_one_attachment_keeps_another_of_the_same_names() {
    for side in sides() {
        let mut tally = Tally::default();
        for first_goes_first in [true, false] {
            for (network, other, names) in alike() {
                // A later ADD puts its spoof check in place of the earlier one's, as the reference does.
                if network.label == "spoof" && !first_goes_first {
                    continue;
                }
                sandbox(|net| {
                    let world = World::new(net, network.clone(), side);
                    let label = format!("{} and {}", network.label, other.label);
                    tally.count(&label, &two_of_a_name(&world, other.clone(), names, first_goes_first));
                });
            }
        }
        tally.close("attachments whose rules have the same names, DEL of one", side);
    }
}

/// Container and interface of each of two attachments, by what they make of an identifier.
type Names = [fn(&str) -> (String, String); 2];

fn alike() -> Vec<(Network, Network, Names)> {
    let elsewhere = |mut network: Network, name: &str| {
        network.name = name.to_owned();
        network.label = "another network";
        network.interface()["ipam"]["ranges"] = json!([[{"subnet": "10.67.0.0/16"}]]);
        network.interface()["bridge"] = json!("br-other");
        network.with_ports(29_000)
    };
    let plain: fn(&str) -> (String, String) = |id| (id.to_owned(), "eth0".to_owned());
    let second: fn(&str) -> (String, String) = |id| (id.to_owned(), "net1".to_owned());
    let longer: fn(&str) -> (String, String) = |id| (format!("1{id}"), "eth0".to_owned());
    let joined: Names = [|id| (id.to_owned(), "b-c".to_owned()), |id| (format!("{id}-b"), "c".to_owned())];
    vec![
        (networks::native(), elsewhere(networks::native(), "net-nft2"), [plain, second]),
        (networks::native(), networks::native().with_ports(29_100), [plain, second]),
        (networks::v4(), networks::v4().with_ports(29_200), [plain, second]),
        (networks::v4(), elsewhere(networks::v4(), "net-v41"), [longer, plain]),
        (networks::routed(), elsewhere(networks::routed(), "net-ptp1"), [longer, plain]),
        (networks::spoofchk(), networks::spoofchk(), joined),
    ]
}

fn two_of_a_name(world: &World<'_>, other: Network, names: Names, first_goes_first: bool) -> String {
    let mut own = world.network.clone();
    let mut other = other;
    if other.name != own.name {
        let _has_a_neighbour = World::new(world.net, other.clone(), world.side);
    }
    let before = world.host();
    for network in [&mut own, &mut other] {
        // Both default routes cannot be the container's.
        network.interface()["ipam"]["routes"] = json!([]);
    }
    let pod = Target::of(&world.net.container());
    let [one, two] = names.map(|name| name(&pod.id));
    let there = if one.0 == two.0 { pod.netns.clone() } else { Target::of(&world.net.container()).netns };
    let first = (world.with(own), Target { id: one.0, netns: pod.netns, ifname: one.1 });
    let second = (world.with(other), Target { id: two.0, netns: there, ifname: two.1 });
    let mut made = [first, second].map(|(world, target)| {
        let result = world.add(&target).expect("ADD");
        (world, target, result)
    });
    if !first_goes_first {
        made.reverse();
    }
    let [(gone_world, gone, gone_result), (world, living, result)] = made;
    let filter = || world.net.run("nft", &["list", "table", "bridge", "nat"]).matches("ether saddr").count();
    let filters = if world.network.label == "spoof" { filter() } else { 0 };
    let mut problem = String::new();
    if let Err(answer) = gone_world.del(&gone, &gone_result) {
        problem.push_str(&format!("DEL of one: {answer:?}\n"));
    }
    if let Err(answer) = world.check(&living, &result) {
        problem.push_str(&format!("CHECK of the other: {answer:?}\n"));
    }
    if filters > 0 && filter() == 0 {
        problem.push_str("the other's spoof check is gone\n");
    }
    if let Err(answer) = world.del(&living, &result) {
        problem.push_str(&format!("DEL of the other: {answer:?}\n"));
    }
    problem + &world.left_on_host(&before)
}

/// The attachments of a GC scenario.
struct Crowd {
    dead: Vec<Target>,
    live: Vec<(Target, Value)>,
}

fn populate(world: &World<'_>) -> Crowd {
    let mut crowd = Crowd { dead: Vec::new(), live: Vec::new() };
    for turn in 0..4 {
        let target = Target::of(&world.net.container());
        let mut world = world.with(world.network.clone());
        if !world.network.ports.is_null() {
            world.network = world.network.with_ports(40_000 + 10 * turn);
        }
        let result = world.add(&target).expect("ADD");
        if turn % 2 == 0 { crowd.dead.push(target) } else { crowd.live.push((target, result)) }
    }
    crowd
}

/// Half of the dead lost their namespaces, too, as after a crash of the runtime.
fn bury(world: &World<'_>, crowd: &Crowd) {
    if let Some(first) = crowd.dead.first() {
        world.bury(first);
    }
}

#[test]
fn gc_removes_the_dead_and_nothing_else() {
    collect_everywhere(networks::all());
}

/// The chains of containers: their names are hashes, and once the rules that lead to them were flushed nothing on the host
/// tells whose they are. GC knows that by the ledger.
#[test]
fn gc_removes_chains_whose_rules_were_flushed() {
    for network in [networks::dual(), networks::routed()] {
        sandbox(|net| {
            let mut world = World::new(net, network.clone(), Side::Ours);
            let chains = || {
                let rules =
                    net.run("iptables-save", &["-t", "nat"]) + &net.run("ip6tables-save", &["-t", "nat"]);
                let chains = rules.lines().filter(|line| line.starts_with(":CNI-"));
                chains.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
            };
            let (live, dead) = (Target::of(&net.container()), Target::of(&net.container()));
            world.add(&live).expect("ADD");
            let of_the_living = chains();
            if !world.network.ports.is_null() {
                world.network = world.network.with_ports(41_000);
            }
            world.add(&dead).expect("ADD");
            assert!(chains().len() > of_the_living.len(), "{}", network.label);
            world.bury(&dead);
            net.run("iptables", &["-t", "nat", "-F"]);
            net.run("ip6tables", &["-t", "nat", "-F"]);
            world.gc(Some(&[&live, &world.neighbour])).unwrap_or_else(|answer| panic!("GC: {answer:?}"));
            assert_eq!(chains(), of_the_living, "{}", network.label);
        });
    }
}

/// GC with and without a list, with an empty one, and with some living ones, on each of the networks.
pub(crate) fn collect_everywhere(networks: Vec<Network>) {
    for network in networks {
        sandbox(|net| {
            if !supported(net, &network) {
                return;
            }
            let other = World::new(net, networks::v4_elsewhere(), Side::Ours);
            let world = World::new(net, network.clone(), Side::Ours);
            let before = world.host();
            let crowd = populate(&world);
            bury(&world, &crowd);
            world.settle();
            let full = world.host();
            world.gc(None).unwrap_or_else(|answer| panic!("GC without a list: {answer:?}"));
            let changed = cnibox_testkit::diff(&full, &world.host());
            assert!(changed.is_empty(), "GC without a list on {}:\n{changed}", network.label);

            let mut living: Vec<_> = crowd.live.iter().map(|(target, _)| target).collect();
            living.push(&world.neighbour);
            world.gc(Some(&living)).unwrap_or_else(|answer| panic!("GC on {}: {answer:?}", network.label));
            for (target, result) in &crowd.live {
                let mut own = world.with(world.network.clone());
                own.network.ports = Value::Null;
                own.check(target, result).unwrap_or_else(|answer| panic!("CHECK of the living: {answer:?}"));
            }
            let host = world.host();
            for dead in &crowd.dead {
                assert!(
                    !host.contains(&dead.id),
                    "{} of {} is still there:\n{}",
                    dead.id,
                    network.label,
                    lines(&host, &dead.id)
                );
            }
            world.gc(Some(&[&world.neighbour])).unwrap_or_else(|answer| panic!("GC: {answer:?}"));
            let left = if world.network.has_host_end() {
                world.left(&before, &crowd.dead[1])
            } else {
                // What is in the containers goes with them.
                let all = crowd.dead.iter().chain(crowd.live.iter().map(|(target, _)| target));
                all.for_each(|target| world.bury(target));
                world.left_but_devices(&before)
            };
            assert!(left.is_empty(), "GC left on {}:\n{left}", network.label);

            // An empty list: nobody of this network lives, whereas the other network does.
            world.gc(Some(&[])).unwrap_or_else(|answer| panic!("GC with an empty list: {answer:?}"));
            let host = world.host();
            assert!(
                !host.contains(&world.neighbour.id),
                "{}:\n{}",
                network.label,
                lines(&host, &world.neighbour.id)
            );
            let mut elsewhere = other.with(other.network.clone());
            elsewhere.network.ports = Value::Null;
            assert!(host.contains(&other.neighbour.id));
        });
    }
}

/// The path of a namespace goes before what the kernel still keeps of it: the socket of a call that was killed, or a process
/// that is ending.
#[test]
fn gc_waits_for_a_namespace_that_is_ending() {
    let networks = networks::all().into_iter().filter(|network| !network.has_host_end());
    collect_ending(networks.collect());
}

/// GC while something holds the namespace of a dead attachment a moment longer, on each of the networks.
pub(crate) fn collect_ending(networks: Vec<Network>) {
    on_each(networks, Side::Ours, |_, world| {
        let before = world.host();
        let target = Target::of(&world.net.container());
        world.add(&target).unwrap_or_else(|answer| panic!("ADD on {}: {answer:?}", world.network.label));
        held_open(world, &target, "0.5");
        world.gc(Some(&[&world.neighbour])).unwrap_or_else(|answer| panic!("GC: {answer:?}"));
        assert_eq!(world.left_but_devices(&before), "", "{}", world.network.label);
    });
}

/// Deletes the container's namespace, which a process holds for so many seconds.
fn held_open(world: &World<'_>, target: &Target, seconds: &str) {
    let hold = format!("ip netns exec {} sleep {seconds} >/dev/null 2>&1 &", target.id);
    world.net.run("sh", &["-c", &hold]);
    // One that is not inside yet would hold nothing.
    let is_inside = || !world.net.run("ip", &["netns", "pids", &target.id]).trim().is_empty();
    assert!((0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_inside()
    }));
    world.net.run("ip", &["netns", "del", &target.id]);
}

fn lines(text: &str, part: &str) -> String {
    text.lines().filter(|line| line.contains(part)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn gc_takes_what_the_go_plugins_left_as_far_as_it_says_whose_it_is() {
    if Side::Go.dir().is_none() {
        return cnibox_testkit::skip("CNIBOX_REFERENCE names no directory with the Go plugins");
    }
    sandbox(|net| {
        let world = World::new(net, networks::v4(), Side::Ours);
        let mut made_by_go = world.with(world.network.clone());
        made_by_go.side = Side::Go;
        let before = world.host();
        let (dead, live) = (Target::of(&net.container()), Target::of(&net.container()));
        made_by_go.add(&dead).expect("ADD by Go");
        let mut second = made_by_go.with(made_by_go.network.clone().with_ports(45_000));
        let result = second.add(&live).expect("ADD by Go");
        net.run("ip", &["netns", "del", &dead.id]);
        world.gc(Some(&[&live, &world.neighbour])).unwrap_or_else(|answer| panic!("GC: {answer:?}"));
        let host = world.host();
        assert!(!host.contains(&dead.id), "{}", lines(&host, &dead.id));
        second.check(&live, &result).unwrap_or_else(|answer| panic!("CHECK by Go: {answer:?}"));
        second.side = Side::Ours;
        second.check(&live, &result).unwrap_or_else(|answer| panic!("CHECK: {answer:?}"));
        second.del(&live, &result).unwrap_or_else(|answer| panic!("DEL of what Go added: {answer:?}"));
        // The firewall's rules of an address name no owner; those of the dead one stay, for whoever gets it next.
        let left = world.left(&before, &live);
        let unowned = left.lines().all(|line| {
            line.contains("CNI-FORWARD") || line.contains("ip saddr") || line.contains("ip daddr")
        });
        assert!(unowned, "left:\n{left}");
    });
}

#[test]
fn del_reports_every_failure_and_does_the_rest() {
    let networks =
        vec![networks::v4(), networks::native(), networks::routed(), networks::stacked(), networks::lent()];
    on_each(networks, Side::Ours, |_, world| {
        let before = world.host();
        let target = Target::of(&world.net.container());
        let result = world.add(&target).expect("ADD");
        let main = world.network.main();
        for later in (main + 1..world.network.plugins.len()).rev() {
            assert!(world.call(later, "DEL", &target, &result).run().ok());
        }
        // Neither the namespace nor the IPAM plugin can be reached.
        std::fs::write("/run/testkit/no-netns", "").expect("write a file");
        let lost = Target { netns: "/run/testkit/no-netns".to_owned(), ..target.clone() };
        let answer = world.call(main, "DEL", &lost, &result).env("CNI_PATH", "/nowhere").run();
        let told = |text: &str| answer.stdout.contains(text);
        assert!(told("no-netns") && told("host-local"), "{}: {answer:?}", world.network.label);
        // Everything else is gone.
        let host = world.host();
        let rest: Vec<_> =
            host.lines().filter(|line| line.contains(&target.id) && !line.starts_with("/run/")).collect();
        assert!(rest.is_empty(), "{}:\n{}", world.network.label, rest.join("\n"));
        world.del(&target, &result).unwrap_or_else(|answer| panic!("DEL: {answer:?}"));
        let left = world.left(&before, &target);
        assert!(left.is_empty(), "{}:\n{left}", world.network.label);
    });
}

/// Rules of the firewall say nothing but an address, which containers on networks that overlap may both have.
#[test]
fn an_address_in_two_networks_is_let_through_as_long_as_one_of_them_has_it() {
    sandbox(|net| {
        let network = |bridge: &str| {
            let mut network = networks::isolated();
            network.name = format!("net-{bridge}");
            network.plugins[0] = json!({"type": "bridge", "bridge": bridge,
                "ipam": {"type": "static", "addresses": [{"address": "10.77.0.9/24"}, {"address": "fd00:77::9/64"}]}});
            network
        };
        let one = World::new(net, networks::layer2(), Side::Ours).with(network("br-one"));
        let other = one.with(network("br-other"));
        let (first, second) = (Target::of(&net.container()), Target::of(&net.container()));
        let accepts = || {
            let rules = ["iptables-save", "ip6tables-save"].map(|save| net.run(save, &["-t", "filter"]));
            rules.concat().lines().filter(|rule| rule.contains("77") && rule.contains("ACCEPT")).count()
        };
        let results = [one.add(&first).expect("ADD"), other.add(&second).expect("ADD in the other network")];
        assert_eq!(accepts(), 4);
        one.del(&first, &results[0]).expect("DEL");
        one.del(&first, &results[0]).expect("DEL once more");
        assert_eq!(accepts(), 4);
        other.del(&second, &results[1]).expect("DEL in the other network");
        assert_eq!(accepts(), 0);
    });
}

/// libcni detached one that a plugin without a ledger has attached again, as somebody else.
#[test]
fn an_address_that_somebody_else_has_by_now_stays_let_through() {
    sandbox(|net| {
        let world = World::new(net, networks::isolated(), Side::Ours);
        let target = Target::of(&net.container());
        let result = world.add(&target).expect("ADD");
        let address = result["ips"][0]["address"].as_str().expect("an address").to_owned();
        // As plugins that keep no ledger do: one container goes, and another one gets its address.
        net.run("ip", &["netns", "exec", &target.id, "ip", "link", "del", "eth0"]);
        let other = net.container();
        net.run(
            "ip",
            &["link", "add", "vethother", "type", "veth", "peer", "name", "eth0", "netns", &other.id],
        );
        net.run("ip", &["-n", &other.id, "addr", "add", &address, "dev", "eth0"]);
        let accepts = || {
            let host = address.split('/').next().unwrap_or_default();
            net.run("iptables", &["-S", "CNI-FORWARD"]).matches(&format!("{host}/32")).count()
        };
        for prev in [&Value::Null, &result] {
            world.call(1, "DEL", &target, prev).run();
            assert_eq!(accepts(), 2);
        }
        net.run("ip", &["link", "del", "vethother"]);
        world.del(&target, &result).expect("DEL");
        assert_eq!(accepts(), 0);
    });
}

/// An ADD that was killed before its firewall's turn has an address whose rules another one left, and took it over with them.
#[test]
fn rules_that_came_with_an_address_go_with_it() {
    sandbox(|net| {
        let mut network = networks::v4();
        network.plugins[0]["ipam"]["ranges"] =
            json!([[{"subnet": "10.61.0.0/16", "rangeStart": "10.61.0.2", "rangeEnd": "10.61.0.5"}]]);
        let world = World::new(net, network, Side::Ours);
        let before = world.host();
        let broken = world.with(world.network.clone().broken());
        let pods = [(); 4].map(|()| net.container());
        let at = |id: &str, pod: usize| Target { id: id.to_owned(), ..Target::of(&pods[pod]) };
        // The addresses .3 and .4, with rules.
        for (id, pod) in [("one", 0), ("other", 1)] {
            broken.add(&at(id, pod)).expect_err("its last plugin fails");
        }
        // .5, and then the .3 that came free.
        for (id, pod) in [("one", 2), ("other", 3)] {
            let again = world.call(0, "ADD", &at(id, pod), &Value::Null).run();
            assert!(again.ok(), "{again:?}");
        }
        for (id, pod) in [("one", 0), ("one", 2), ("other", 1), ("other", 3)] {
            world.del(&at(id, pod), &Value::Null).expect("DEL");
        }
        assert_eq!(world.left_on_host(&before), "");
    });
}

/// libcni has no runtimeConfig for STATUS and GC, and DEL loses it with libcni's cache.
#[test]
fn ranges_that_come_with_each_attachment_are_not_missed() {
    sandbox(|net| {
        let mut network = networks::v4();
        network.plugins.truncate(1);
        network.plugins[0]["capabilities"] = json!({"ipRanges": true});
        let world = World::new(net, network.clone(), Side::Ours);
        network.plugins[0]["runtimeConfig"] = json!({"ipRanges": [[{"subnet": "10.61.0.0/16"}]]});
        network.plugins[0]["ipam"]["ranges"] = Value::Null;
        let ours = world.with(network.clone());
        network.plugins[0]["runtimeConfig"] = Value::Null;
        let later = world.with(network);
        let before = world.host();
        for by_gc in [false, true] {
            let target = Target::of(&net.container());
            ours.add(&target).expect("ADD");
            let asked = later.call(0, "STATUS", &target, &Value::Null).run();
            assert!(asked.ok(), "{asked:?}");
            let cleaned =
                if by_gc { later.gc(Some(&[&world.neighbour])) } else { later.del(&target, &Value::Null) };
            cleaned.expect("DEL or GC");
            assert_eq!(world.left_on_host(&before), "");
        }
    });
}

/// Each network has rules of its own for it.
#[test]
fn an_address_in_two_networks_is_masqueraded_in_one_of_them_after_del_in_the_other() {
    sandbox(|net| {
        let network = |bridge: &str| {
            let mut network = networks::layer2();
            network.name = format!("net-{bridge}");
            network.plugins[0]["bridge"] = json!(bridge);
            network.plugins[0]["ipMasq"] = json!(true);
            network.plugins[0]["ipam"] =
                json!({"type": "static", "addresses": [{"address": "10.77.0.9/24"}]});
            network
        };
        let one = World::new(net, networks::layer2(), Side::Ours).with(network("br-one"));
        let other = one.with(network("br-other"));
        let target = Target::of(&net.container());
        let second = Target { ifname: "eth1".to_owned(), ..target.clone() };
        let kept = one.add(&target).expect("ADD");
        let alone = net.run("iptables-save", &["-t", "nat"]);
        let result = other.add(&second).expect("ADD in the other network");
        other.del(&second, &result).expect("DEL in the other network");
        let rules = |text: &str| {
            text.lines().filter(|line| line.starts_with('-')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rules(&net.run("iptables-save", &["-t", "nat"])), rules(&alone));
        one.del(&target, &kept).expect("DEL");
    });
}
