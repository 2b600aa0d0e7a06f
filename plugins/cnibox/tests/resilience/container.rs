// SPDX-License-Identifier: Apache-2.0
//! What a container may put into its own namespace: whatever it is, the container is checked and taken down, and the host
//! is as before.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use cnibox_testkit::{diff, sandbox};
use serde_json::{Value, json};

use crate::fixture::{Side, Target, World, on_each};
use crate::networks::{self, Network};
use crate::report::{Random, Tally, rounds, sides};

/// Shell commands of a container that plants something. `$dev` is a link of its own, `$name` and `$text` are bytes that
/// the kernel takes for a link's name and for an alias, and seldom text.
const PLANTINGS: &[&str] = &[
    "ip link add \"$name\" type bridge",
    "ip link add \"$name\" type veth peer name \"p$name\"",
    "ip link property add dev $dev altname \"$text\"",
    "ip link set $dev alias \"$text\"",
    "ip address add 10.200.0.1/24 dev $dev label \"$dev:$label\"",
    "ip rule add iif \"$name\" lookup 77",
    "ip -6 rule add oif \"$name\" lookup 77",
    "for n in {1..300}; do printf 'link property add dev lo altname x%0119d\\n' $n; done | ip -b -",
    "for n in {1..700}; do echo rule add from 10.201.0.$((n % 250)) iif x$n lookup 78; done | ip -b -",
    "for n in {1..500}; do echo address add 10.202.$((n / 250)).$((n % 250))/32 dev lo; done | ip -b -",
    "for n in {1..30}; do ip link add x$n type bridge; ip link set x$n alias \"$text\" up; done",
    "ip link set lo up; ip route add unreachable 10.203.0.0/16; ip nexthop add id 9 blackhole; \
     ip route add 10.204.0.0/16 nhid 9; ip route add 10.205.0.0/16 dev lo mtu lock 1300 congctl reno realm 5 proto 99",
    "for kind in vxlan gre sit ip6gre vti xfrm bareudp geneve gtp ifb nlmon vcan vrf dummy wireguard; do \
     ip link add k$kind type $kind id 7 dstport 4789 || ip link add k$kind type $kind table 7 || \
     ip link add k$kind type $kind || true; done 2>/dev/null",
];

/// Bytes that may be part of a name, as Bash reads them in `$'...'`.
fn bytes(random: &mut Random, most: usize) -> String {
    let mut text = String::new();
    for _ in 0..=random.below(most) {
        let byte = *random.pick(b"\x01\x7f\x80\xc3\xe2\xff\xfeabz09-_.\"'$;\\{}");
        let _ = write!(text, "\\x{byte:02x}");
    }
    text
}

/// Plants a few things.
fn plant(world: &World<'_>, target: &Target, random: &mut Random) -> String {
    // What is written on a device that is lent comes back with it.
    let own = if world.network.kind(world.network.main()) == "host-device" { "lo" } else { "eth0" };
    let mut script = String::new();
    for _ in 0..=random.below(3) {
        let (name, label, text) = (bytes(random, 12), bytes(random, 5), bytes(random, 80));
        let (dev, planting) = (["lo", own][random.below(2)], *random.pick(PLANTINGS));
        let _ = writeln!(script, "dev={dev}; name=$'a{name}'; label=$'{label}'; text=$'t{text}'\n{planting}");
    }
    let inside = ["netns", "exec", &target.id, "bash", "-c", &script];
    // Somebody may have planted the same before.
    let status = Command::new("ip").args(inside).stderr(Stdio::null()).status().expect("start ip");
    format!("{script}({status})")
}

#[test]
fn no_content_of_a_container_stops_its_teardown() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks = networks::all().into_iter().chain(networks::rare()).collect();
        on_each(networks, side, |number, world| {
            let mut random = Random::new(0xc0_4a1e + number as u64);
            let before = world.host();
            for _ in 0..rounds(4, 30) {
                let target = Target::of(&world.net.container());
                let result = world.add(&target).expect("ADD");
                let planted = plant(world, &target, &mut random);
                let mut problem = String::new();
                // The Go plugins cannot check a network without addresses.
                if side == Side::Ours
                    && let Err(answer) = world.check(&target, &result)
                {
                    let _ = writeln!(problem, "CHECK: {answer:?}");
                }
                if let Err(answer) = world.del(&target, &result) {
                    let _ = writeln!(problem, "DEL: {answer:?}");
                }
                problem += &world.left_on_host(&before);
                tally.count(&format!("{}: {planted}", world.network.label), &problem);
                world.bury(&target);
            }
        });
        tally.close("hostile container", side);
    }
}

/// What a container does to its own interface.
const UPSETS: &[&str] = &[
    "ip link set eth0 down; ip link set eth0 name x0",
    "ip link set eth0 down; ip link set eth0 name x0; ip link property add dev lo altname eth0",
    "ip link set eth0 down; ip link set eth0 name x0; ip link set lo down; ip link set lo name eth0; ip link set eth0 up",
    "ip link set eth0 down; ip link set eth0 name x0; ip link add eth0 type bridge; ip link set eth0 up",
    "ip link set lo up; for net in $(ip -o address show dev eth0 scope global | awk '{print $4}'); do \
     ip address del $net dev eth0; ip address add ${net%/*} dev lo; done",
];
/// Of a device that is lent the host gets back what the container has made of it.
const DAMAGES: &[&str] = &["ip link del eth0", "ip link set eth0 address 02:00:00:00:99:01"];

/// Runs one of them, then `end`; nothing may be left on the host.
fn upset(upsets: &[&str], networks: Vec<Network>, end: impl Fn(&World<'_>, &Target, &Value) + Send + Sync) {
    on_each(networks, Side::Ours, |_, world| {
        for script in upsets {
            let before = world.host();
            let target = Target::of(&world.net.container());
            let result = world.add(&target).expect("ADD");
            world.net.run("ip", &["netns", "exec", &target.id, "bash", "-c", script]);
            end(world, &target, &result);
            assert_eq!(world.left_on_host(&before), "", "{}: {script}", world.network.label);
            world.bury(&target);
        }
    });
}

/// Nothing a container does to its interface keeps rules, addresses or links on the host.
#[test]
fn whatever_a_container_does_to_its_interface_nothing_is_left_by_del() {
    let del = |world: &World<'_>, target: &Target, result: &Value| {
        world
            .del(target, result)
            .unwrap_or_else(|answer| panic!("DEL on {}: {answer:?}", world.network.label));
    };
    let all: Vec<_> = networks::all().into_iter().chain(networks::rare()).collect();
    upset(UPSETS, all.clone(), del);
    let own = all.into_iter().filter(|network| network.host != networks::DEVICES).collect();
    upset(DAMAGES, own, del);
}

#[test]
fn whatever_a_container_calls_its_interface_nothing_is_left_by_gc() {
    let own = networks::all().into_iter().filter(|network| network.host != networks::DEVICES).collect();
    let gc = |world: &World<'_>, _: &Target, _: &Value| {
        world
            .gc(Some(&[&world.neighbour]))
            .unwrap_or_else(|answer| panic!("GC on {}: {answer:?}", world.network.label));
    };
    upset(&[&UPSETS[..1], &DAMAGES[1..]].concat(), own, gc);
}

#[test]
fn links_of_the_host_that_have_no_name_stop_nobody() {
    for network in [networks::v4(), networks::routed(), networks::laden()] {
        sandbox(|net| {
            let world = World::new(net, network, Side::Ours);
            let planted = r"ip link add $'br\377' type bridge; ip link property add dev lo altname $'lo\377'; \
                ip link add $'ve\377' type veth peer name $'vf\377'; ip link set $'ve\377' alias $'cnibox:\377'; \
                ip address add 192.0.2.1/24 dev $'ve\377' label $'ve\377:1'; ip rule add iif $'if\377' lookup 99";
            net.run("bash", &["-ec", planted]);
            let before = world.host();
            let target = Target::of(&net.container());
            let result = world.add(&target).expect("ADD");
            world.check(&target, &result).expect("CHECK");
            world.gc(Some(&[&world.neighbour])).expect("GC");
            assert_eq!(world.left_on_host(&before), "", "GC takes what is in no list");
            world.del(&target, &result).expect("DEL");
            assert_eq!(world.left_on_host(&before), "");
        });
    }
}

/// In a user namespace that owns the container's namespace and not the host's, nobody comes back from the container.
#[test]
fn plugins_work_where_they_cannot_come_back_from_the_container() {
    for side in [Side::Ours, Side::Go] {
        let Some(dir) = side.dir() else { continue };
        sandbox(|net| {
            crate::fixture::install();
            let conf = json!({"cniVersion": "1.0.0", "name": "n", "type": "loopback"});
            let script = format!(
                "unshare --net sleep 60 & until [ \"$(readlink /proc/$!/ns/net)\" != \"$(readlink /proc/$$/ns/net)\" ]; \
                 do sleep 0.01; done; export CNI_NETNS=/proc/$!/ns/net CNI_CONTAINERID=c CNI_IFNAME=lo CNI_PATH={dir}; \
                 for verb in ADD CHECK DEL; do echo '{conf}' | CNI_COMMAND=$verb {dir}/loopback || exit; done; kill $!",
                dir = dir.display()
            );
            let told = net.run("unshare", &["--user", "--map-root-user", "sh", "-c", &script]);
            assert!(told.contains("127.0.0.1/8"), "{side:?}: {told}");
        });
    }
}

/// A network whose plugin is to manage addresses for itself, or by way of somebody else's plugin that only calls it.
fn calling_itself(ipam: &str) -> Network {
    let mut network = networks::routed();
    network.plugins.truncate(1);
    network.plugins[0]["ipam"]["type"] = json!(ipam);
    network
}

#[test]
fn plugins_that_call_themselves_come_to_an_end() {
    for ipam in ["ptp", "bridge", "loopback", "portmap", "detour"] {
        sandbox(|net| {
            let world = World::new(net, networks::routed(), Side::Ours);
            let dir = Side::Ours.dir().expect("our own plugins");
            let detour = dir.join("detour");
            std::fs::write(&detour, "#!/bin/sh\nexec \"${0%/*}/ptp\"\n").expect("write a plugin");
            std::fs::set_permissions(&detour, std::fs::Permissions::from_mode(0o755)).expect("make it one");
            let before = world.host();
            let mut network = calling_itself(ipam);
            let neighbour = json!({"containerID": world.neighbour.id, "ifname": world.neighbour.ifname});
            network.plugins[0]["cni.dev/valid-attachments"] = json!([neighbour]);
            let world = world.with(network);
            let target = Target::of(&net.container());
            for verb in ["ADD", "CHECK", "DEL", "STATUS", "GC"] {
                let answer = world.call(0, verb, &target, &Value::Null).run();
                let problem = answer.unclean().unwrap_or_default();
                assert_eq!((problem.as_str(), answer.ok()), ("", false), "{verb} {ipam}: {answer:?}");
                let refused = answer.json()["code"] == 7;
                assert!(refused || verb == "CHECK", "{verb} {ipam}: {answer:?}");
            }
            assert_eq!(diff(&before, &world.host()), "");
        });
    }
}
