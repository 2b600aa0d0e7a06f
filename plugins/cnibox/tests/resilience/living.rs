// SPDX-License-Identifier: Apache-2.0
//! A living attachment is left alone by whatever another ADD of the same names does, in whatever namespace; a dead one goes
//! whole, wherever it is.

use std::fs;
use std::path::Path;
use std::time::Duration;

use cnibox_testkit::Container;
use serde_json::{Value, json};

use crate::faults::killed_before_rename;
use crate::fixture::{Answer, Side, Target, World, on_all, on_each};
use crate::histories::crowded;
use crate::networks::{self, Network};

/// Every plugin that makes an interface and that every kernel has the parts for, with addresses of host-local.
fn networks() -> Vec<Network> {
    vec![
        networks::v4(),
        networks::native(),
        networks::routed(),
        networks::stacked(),
        networks::tap(),
        networks::lent(),
    ]
}

/// The same attachment in another container's namespace.
fn moved(target: &Target, pod: &Container) -> Target {
    Target { netns: pod.path.to_string_lossy().into_owned(), ..target.clone() }
}

fn interface(world: &World<'_>, target: &Target) -> String {
    let text =
        world.net.run("sh", &["-c", &format!("nsenter --net={} ip -o addr show dev eth0", target.netns)]);
    // Lifetimes and the state of detection change by themselves.
    text.lines().map(|line| line.split("scope").next().unwrap_or_default().to_owned() + "\n").collect()
}

fn is_duplicate(answer: &Answer) -> bool {
    answer.json()["msg"].as_str().unwrap_or_default().contains("duplicate allocation is not allowed")
}

#[test]
fn add_in_another_namespace_is_refused_as_long_as_the_first_lives() {
    on_each(networks(), Side::Ours, |_, world| {
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        let result = world.add(&target).expect("ADD");
        let (looks, host) = (interface(world, &target), world.host());
        let answer = world.add(&moved(&target, &second)).expect_err("ADD of what lives");
        // A device that is lent is not on the host to be lent again.
        assert!(
            is_duplicate(&answer) || world.network.host == networks::DEVICES,
            "{}: {answer:?}",
            world.network.label
        );
        assert_eq!(interface(world, &target), looks, "{}", world.network.label);
        assert_eq!(cnibox_testkit::diff(&host, &world.host()), "", "{}", world.network.label);
        world.check(&target, &result).expect("CHECK of what lives");
        world.del(&target, &result).expect("DEL");
    });
}

/// The rules of a spoof check are named by container and interface, wherever that is.
#[test]
fn a_refused_add_in_another_namespace_leaves_the_spoof_check() {
    on_each(vec![networks::spoofchk()], Side::Ours, |_, world| {
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        let result = world.add(&target).expect("ADD");
        let rules = || world.net.run("nft", &["list", "table", "bridge", "nat"]);
        let before = rules();
        world.add(&moved(&target, &second)).expect_err("ADD of what lives");
        assert_eq!(rules(), before);
        world.check(&target, &result).expect("CHECK of what lives");
        world.del(&target, &result).expect("DEL");
    });
}

#[test]
fn add_behind_any_result_is_refused_where_it_lives() {
    on_each(networks(), Side::Ours, |_, world| {
        let pod = world.net.container();
        let target = Target::of(&pod);
        let result = world.add(&target).expect("ADD");
        let looks = interface(world, &target);
        let named = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": target.netns}]});
        for previous in [named, json!({"cniVersion": "1.1.0", "interfaces": []}), result.clone()] {
            world.add_behind(&target, previous).expect_err("ADD of what lives");
            assert_eq!(interface(world, &target), looks, "{}", world.network.label);
            world.check(&target, &result).expect("CHECK of what lives");
        }
        world.del(&target, &result).expect("DEL");
    });
}

/// What was noted of the living one is what DEL without prevResult goes by.
#[test]
fn a_failed_second_add_of_a_chained_plugin_loses_no_notes() {
    on_each(vec![networks::v4(), networks::native()], Side::Ours, |_, world| {
        let before = world.host();
        let target = Target::of(&world.net.container());
        let result = world.add(&target).expect("ADD");
        let mut network = world.network.clone();
        let (firewall, portmap) = (network.plugins.len() - 2, network.plugins.len() - 1);
        network.plugins[firewall]["iptablesAdminChainName"] = json!("A CHAIN");
        network.ports = json!([{"hostPort": 70_000, "containerPort": 80, "protocol": "tcp"}]);
        let broken = world.with(network);
        for index in [firewall, portmap] {
            let mut other = result.clone();
            other["ips"][0]["address"] = json!("10.9.9.9/24");
            let answer = broken.call(index, "ADD", &target, &other).run();
            assert!(!answer.ok(), "{answer:?}");
        }
        world.add(&target).expect_err("it lives");
        world.del(&target, &Value::Null).expect("DEL without prevResult");
        assert_eq!(world.left(&before, &target), "", "{}", world.network.label);
    });
}

#[test]
fn what_a_killed_add_left_goes_whole_wherever_it_is() {
    on_all(networks(), Side::Ours, |_, world| {
        let before = world.host();
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        // Killed when its interface has its address, and before it is done.
        let killed = (1..30).any(|note| {
            let mut call = world.call(0, "ADD", &target, &Value::Null);
            call.under = killed_before_rename(note);
            call.run();
            let inside = world.net.run("sh", &["-c", &format!("nsenter --net={} ip -o addr", target.netns)]);
            ledger().contains(r#""progress":"begun""#) && inside.contains("eth0    inet ")
        });
        assert!(killed, "{}: {}", world.network.label, ledger());
        let elsewhere = moved(&target, &second);
        let result = world.add(&elsewhere);
        // The device went home when the attempt was taken down.
        let result = result.unwrap_or_else(|answer| panic!("{}: {answer:?}", world.network.label));
        let left = world.net.run("sh", &["-c", &format!("nsenter --net={} ip -o link", target.netns)]);
        assert!(!left.contains("eth0"), "{}: {left}", world.network.label);
        world.del(&elsewhere, &result).expect("DEL");
        let _ = world.del(&target, &Value::Null);
        assert_eq!(world.left(&before, &target), "", "{}", world.network.label);
    });
}

/// A failed ADD in one namespace; the next one, in another, was killed before it could do anything; DEL knows of that only.
#[test]
fn del_takes_down_what_a_failed_add_left_in_another_namespace() {
    on_each(networks(), Side::Ours, |_, world| {
        let before = world.host();
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        world.with(world.network.clone().broken()).add(&target).expect_err("ADD of a broken chain");
        assert!(world.has_interface(&target), "{}: there is nothing to leave", world.network.label);
        let elsewhere = moved(&target, &second);
        world.del(&elsewhere, &Value::Null).expect("DEL");
        assert_eq!(world.left(&before, &target), "", "{}", world.network.label);
    });
}

/// An interface of the same name that is not the noted one is somebody else's.
#[test]
fn del_leaves_what_took_the_place_of_a_failed_add_in_another_namespace() {
    on_each(vec![networks::stacked(), networks::tap()], Side::Ours, |_, world| {
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        world.with(world.network.clone().broken()).add(&target).expect_err("ADD of a broken chain");
        let replace = "ip link del eth0 && ip link add eth0 type veth peer name other0";
        world.net.run("ip", &["netns", "exec", &target.id, "sh", "-ec", replace]);
        world.del(&moved(&target, &second), &Value::Null).expect("DEL");
        assert!(world.has_interface(&target), "{}", world.network.label);
    });
}

/// So is one that plugins without a ledger have made since in the very namespace: they took the failed one down.
#[test]
fn add_leaves_what_took_the_place_of_a_failed_add() {
    on_each(networks(), Side::Ours, |_, world| {
        let target = Target::of(&world.net.container());
        world.with(world.network.clone().broken()).add(&target).expect_err("ADD of a broken chain");
        let replace = "ip link del eth0 && ip link add eth0 type veth peer name other0 && ip addr add 192.0.2.9/32 dev eth0";
        world.net.run("ip", &["netns", "exec", &target.id, "sh", "-ec", replace]);
        let looks = interface(world, &target);
        world.add(&target).expect_err("ADD where another lives");
        assert_eq!(interface(world, &target), looks, "{}", world.network.label);
    });
}

/// What the ledger says of everybody.
fn ledger() -> String {
    let shelves = fs::read_dir("/run/cnibox/attachments").into_iter().flatten().flatten();
    let files = shelves.flat_map(|shelf| fs::read_dir(shelf.path()).into_iter().flatten().flatten());
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}

#[test]
fn add_works_again_when_the_namespace_is_gone() {
    on_each(networks(), Side::Ours, |_, world| {
        // A device of software goes with the namespace.
        if world.network.host == networks::DEVICES {
            return;
        }
        let before = world.host();
        let id = "lost-namespace".to_owned();
        let target = Target { netns: format!("/run/netns/{id}"), id, ifname: "eth0".to_owned() };
        for turn in 0..3 {
            world.net.run("ip", &["netns", "add", &target.id]);
            let added = world.add(&target);
            assert!(added.is_ok(), "{}, turn {turn}: {added:?}", world.network.label);
            world.net.run("ip", &["netns", "del", &target.id]);
            if !world.network.has_host_end() {
                numbers_go(world);
            }
        }
        world.del(&target, &Value::Null).expect("DEL");
        assert_eq!(world.left_on_host(&before), "", "{}", world.network.label);
    });
}

/// Waits until the kernel has ended all namespaces that have no path: nothing but their numbers tells.
fn numbers_go(world: &World<'_>) {
    let paths =
        || world.net.run("ip", &["netns", "list"]).lines().filter(|line| line.contains("(id: ")).count();
    let numbers = || world.net.run("ip", &["netns", "list-id"]).lines().count();
    for _ in 0..100 {
        if numbers() <= paths() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_address_that_lives_is_not_handed_out_without_its_reservation() {
    on_each(networks(), Side::Ours, |_, world| {
        let first = Target::of(&world.net.container());
        let result = world.add(&first).expect("ADD");
        let address =
            result["ips"][0]["address"].as_str().and_then(|net| net.split('/').next()).expect("an address");
        let reservations = format!("/run/cni/{}", world.network.name);
        assert!(Path::new(&reservations).join(address).exists());
        // As people are told to do who run out of addresses.
        fs::remove_dir_all(&reservations).expect("remove the reservations");
        let second = Target::of(&world.net.container());
        let mut mine = world.with(world.network.clone());
        if !mine.network.ports.is_null() {
            mine.network = mine.network.with_ports(41_000);
        }
        let other = mine.add(&second).expect("ADD of another");
        let taken: Vec<_> = [&result, &other]
            .iter()
            .flat_map(|result| result["ips"].as_array().expect("addresses"))
            .collect();
        let mut unique: Vec<_> = taken.iter().map(|ip| ip["address"].to_string()).collect();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), taken.len(), "{}: {taken:?}", world.network.label);
        mine.del(&second, &other).expect("DEL");
        world.del(&first, &result).expect("DEL");
    });
}

#[test]
fn del_of_another_container_in_the_same_namespace_leaves_the_interface() {
    on_each(networks(), Side::Ours, |_, world| {
        let (first, second) = (world.net.container(), world.net.container());
        let target = Target::of(&first);
        let result = world.add(&target).expect("ADD");
        let looks = interface(world, &target);
        let stranger = moved(&Target::of(&second), &first);
        world.del(&stranger, &Value::Null).expect("DEL of another");
        assert_eq!(interface(world, &target), looks, "{}", world.network.label);
        world.add(&stranger).expect_err("ADD where another lives");
        world.del(&stranger, &Value::Null).expect("DEL of another");
        assert_eq!(interface(world, &target), looks, "{}", world.network.label);
        world.del(&target, &result).expect("DEL");
    });
}

#[test]
fn what_is_lent_comes_home_untuned_when_the_runtime_has_lost_the_namespace() {
    on_each(vec![networks::lent()], Side::Ours, |_, world| {
        let target = Target::of(&world.net.container());
        let before = world.host();
        let result = world.add(&target).expect("ADD");
        world.del(&Target { netns: String::new(), ..target }, &result).expect("DEL");
        assert_eq!(cnibox_testkit::diff(&before, &world.host()), "");
    });
}

/// A killed ADD gave a lent device back and had no time to say so; somebody else was lent it since, in the same namespace.
#[test]
fn a_device_that_was_lent_again_stays_where_it_is() {
    on_each(vec![networks::lent()], Side::Ours, |_, world| {
        let (shared, elsewhere) = (world.net.container(), world.net.container());
        // Both want the same device.
        let dead = Target { id: "pod1-dead".to_owned(), ..Target::of(&shared) };
        let living = Target { id: "pod8-living".to_owned(), ..Target::of(&shared) };
        world.with(world.network.clone().broken()).add(&dead).expect_err("its last plugin fails");
        world.net.run("cp", &["-a", "/run/cnibox", "/run/testkit/noted"]);
        world.del(&dead, &Value::Null).expect("DEL");
        world.net.run("cp", &["-a", "/run/testkit/noted/.", "/run/cnibox"]);
        let result = world.add(&living).expect("ADD");
        let looks = interface(world, &living);
        let stays = |what: &str| {
            assert_eq!(interface(world, &living), looks, "{what}");
            world.check(&living, &result).unwrap_or_else(|answer| panic!("CHECK after {what}: {answer:?}"));
        };
        world.add(&moved(&dead, &elsewhere)).expect_err("the device is lent");
        stays("ADD in another namespace");
        world.add(&dead).expect_err("the device is lent");
        stays("ADD in the same namespace");
        world.del(&moved(&dead, &elsewhere), &Value::Null).expect("DEL in another namespace");
        stays("DEL in another namespace");
        world.gc(Some(&[&living, &world.neighbour])).expect("GC");
        stays("GC");
        world.del(&dead, &Value::Null).expect("DEL in the same namespace");
        stays("DEL in the same namespace");
        world.del(&living, &result).expect("DEL");
    });
}

/// As with the Go plugins. When the container ends, the kernel would give it back under the container's name.
#[test]
fn what_is_lent_comes_home_although_the_network_was_renamed() {
    on_each(vec![networks::lent()], Side::Ours, |_, world| {
        let target = Target::of(&world.net.container());
        let devices = || world.net.run("sh", &["-c", "ip -o link | cut -d: -f2 | cut -d@ -f1 | sort"]);
        let before = devices();
        let result = world.add(&target).expect("ADD");
        assert_ne!(devices(), before);
        let renamed = Network { name: "renamed".to_owned(), ..world.network.clone() };
        world.with(renamed).del(&target, &result).expect("DEL");
        assert_eq!(devices(), before);
    });
}

/// The backup's name has neither the network nor the namespace.
#[test]
fn what_is_lent_comes_home_untuned_whatever_del_was_sent_before() {
    on_each(vec![networks::lent()], Side::Ours, |_, world| {
        let [first, second] = [(); 2].map(|()| world.net.container());
        let target = Target::of(&first);
        let before = world.host();
        let result = world.add(&target).expect("ADD");
        let mut other = Network { name: "other".to_owned(), ..world.network.clone() };
        other.interface()["device"] = json!("lent7");
        let other = world.with(other);
        other.add(&target).expect_err("the name is taken");
        other.del(&target, &Value::Null).expect("DEL of what has failed");
        world.check(&target, &result).expect("CHECK");
        world.del(&moved(&target, &second), &Value::Null).expect("DEL where it is not");
        world.del(&target, &result).expect("DEL");
        assert_eq!(cnibox_testkit::diff(&before, &world.host()), "");
    });
}

/// DEL of a namespace where it never was released its address; what fails elsewhere then says nothing about it.
#[test]
fn a_failed_add_elsewhere_is_no_reason_to_take_down_what_lives() {
    on_each(vec![networks::v4()], Side::Ours, |_, world| {
        let [first, second, third] = [(); 3].map(|()| world.net.container());
        let target = Target::of(&first);
        world.add(&target).expect("ADD");
        let looks = interface(world, &target);
        world.del(&moved(&target, &second), &Value::Null).expect("DEL where it is not");
        let broken = world.with(world.network.clone().broken());
        broken.add(&moved(&target, &second)).expect_err("its last plugin fails");
        assert_eq!(interface(world, &target), looks);
        let _ = world.add(&moved(&target, &third));
        assert_eq!(interface(world, &target), looks);
        for pod in [&third, &second, &first] {
            world.del(&moved(&target, pod), &Value::Null).expect("DEL");
        }
    });
}

/// What such an ADD left has an address that the ledger says nothing of.
#[test]
fn gc_keeps_an_address_that_nobody_noted_and_a_container_has() {
    let mut networks = networks();
    networks.retain(|network| network.host != networks::DEVICES);
    on_each(networks.into_iter().map(crowded).collect(), Side::Ours, |_, world| {
        let before = world.host();
        let [first, second, third] = [(); 3].map(|()| world.net.container());
        let target = Target::of(&first);
        world.add(&target).expect("ADD");
        world.del(&moved(&target, &second), &Value::Null).expect("DEL where it is not");
        let broken = world.with(world.network.clone().broken());
        broken.add(&moved(&target, &third)).expect_err("its last plugin fails");
        world.gc(Some(&[&world.neighbour])).expect("GC");
        // GC may have found the interfaces, and then their addresses are free.
        let addresses = |pod: &Container| {
            let netns = pod.path.to_string_lossy();
            let words = world.net.run("sh", &["-c", &format!("nsenter --net={netns} ip -o addr")]);
            words.split_whitespace().filter(|word| word.contains('/')).map(str::to_owned).collect::<Vec<_>>()
        };
        let kept = [addresses(&first), addresses(&third)].concat();
        let mut others = Vec::new();
        // Until nothing is left of the range.
        loop {
            let other = Target::of(&world.net.container());
            let Ok(result) = world.add(&other) else { break };
            for ip in result["ips"].as_array().expect("addresses") {
                let address = ip["address"].as_str().expect("an address").to_owned();
                assert!(!kept.contains(&address), "{}: {address} was given twice", world.network.label);
            }
            others.push((other, result));
        }
        assert!(!others.is_empty(), "{}", world.network.label);
        for (other, result) in others {
            world.del(&other, &result).expect("DEL");
        }
        for pod in [&third, &second, &first] {
            world.del(&moved(&target, pod), &Value::Null).expect("DEL");
        }
        assert_eq!(cnibox_testkit::diff(&before, &world.host()), "", "{}", world.network.label);
    });
}

/// No runtime has an attachment in its list before ADD is done. What holds the record is the process of an ADD.
#[test]
fn gc_leaves_an_add_alone_that_runs() {
    let networks = [networks(), vec![networks::laden(), networks::spoofchk()]].concat();
    on_each(networks, Side::Ours, |_, world| {
        let target = Target::of(&world.net.container());
        let result = world.add(&target).expect("ADD");
        let name = cnibox_spec::Attachment::new(&world.network.name, &target.id, &target.ifname);
        let ledger = cnibox_sys::Ledger::of_host();
        let mut record = ledger.read(&name.expect("names")).expect("a record");
        record.progress = cnibox_sys::Progress::Begun;
        let runs = ledger.write(&record).expect("hold the record");
        let (looks, host) = (interface(world, &target), world.host());
        world.gc(Some(&[&world.neighbour])).expect("GC");
        assert_eq!(interface(world, &target), looks, "{}", world.network.label);
        assert_eq!(cnibox_testkit::diff(&host, &world.host()), "", "{}", world.network.label);
        drop(runs);
        world.del(&target, &result).expect("DEL");
    });
}

/// The kernel takes `%d` for a pattern and chooses another name, which nobody would find again.
#[test]
fn an_interface_name_that_is_a_pattern_is_refused() {
    on_each(networks(), Side::Ours, |_, world| {
        let before = world.host();
        let target = Target { ifname: "x%d".to_owned(), ..Target::of(&world.net.container()) };
        world.add(&target).expect_err("a pattern");
        world.del(&target, &Value::Null).expect("DEL");
        assert_eq!(world.left(&before, &target), "", "{}", world.network.label);
    });
}
