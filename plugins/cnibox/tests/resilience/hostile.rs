// SPDX-License-Identifier: Apache-2.0
//! Input from somebody who means harm: no verb panics, hangs, writes outside its own directories, or touches what is
//! somebody else's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use cnibox_testkit::{Sandbox, diff, sandbox};
use serde_json::{Value, json};

use crate::fixture::{Call, Side, Target, World, on_each, wait};
use crate::networks;
use crate::report::{Random, Tally, rounds, sides};

/// Texts that have broken something somewhere.
const TEXTS: &[&str] = &[
    "",
    ".",
    "..",
    "../../../run/testkit/victim",
    "/run/testkit/victim",
    "a/b",
    "-j",
    "--flush",
    "-F",
    "$(touch /run/testkit/pwned)",
    "`touch /run/testkit/pwned`",
    ";touch /run/testkit/pwned",
    "x\nCOMMIT\n*nat\n-F POSTROUTING\nCOMMIT\n*filter",
    "x\" -j ACCEPT\n-F",
    "x\\\" } ; flush ruleset ; #",
    "name with blanks",
    "tab\there",
    "\u{0}",
    "\u{feff}",
    "ünïcödé",
    "%s%s%n",
    "eth0:1",
    SENTINEL,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "10.61.0.0/33",
    "10.61.0.999",
    "0.0.0.0",
    "255.255.255.255",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "lo",
    "1.1.0",
    "0.1.0",
    "99.0.0",
    "host-local",
    "/bin/sh",
    "../../../bin/sh",
];

/// Somebody else's link. What a network or container of this name has would look like somebody else's, too.
const SENTINEL: &str = "sentinel0";

/// Somebody else's link, address, rules, table and files.
fn plant_sentinels(net: &Sandbox) {
    let shell = "ip link add sentinel0 type veth peer name sentinel1; ip address add 192.0.2.77/24 dev sentinel0; \
        ip link set sentinel0 up; ip link add sentinel-br type bridge; \
        iptables -t nat -N SENTINEL; iptables -t nat -A SENTINEL -s 192.0.2.77 -j RETURN; \
        iptables -t nat -A POSTROUTING -s 192.0.2.77 -m comment --comment 'sentinel' -j SENTINEL; \
        iptables -A FORWARD -s 192.0.2.77 -m comment --comment 'sentinel' -j ACCEPT; \
        ip6tables -A FORWARD -s 2001:db8::77 -m comment --comment 'sentinel' -j ACCEPT; \
        nft add table inet sentinel; nft 'add chain inet sentinel c'; nft 'add rule inet sentinel c ip saddr 192.0.2.77 drop'; \
        mkdir -p /var/lib/sentinel /run/sentinel; echo precious >/run/testkit/victim; echo precious >/var/lib/sentinel/file; \
        echo precious >/run/sentinel/file";
    net.run("sh", &["-ec", shell]);
}

/// What must never change: the sentinels, and every file outside the plugins' own directories.
fn sentinels(net: &Sandbox) -> String {
    let host = format!("{:?}", net.snapshot());
    let mut lines: Vec<_> = host
        .lines()
        .filter(|line| {
            ["sentinel", "SENTINEL", "192.0.2.77", "2001:db8::77"].iter().any(|word| line.contains(word))
        })
        .filter(|line| !line.starts_with("/run/cnibox") && !line.starts_with("/run/cni/"))
        // An interface of a container may have the name, and its objects carry it.
        .filter(|line| !["cnibox:", "CNI-", ", id: "].iter().any(|mark| line.contains(mark)))
        .map(str::to_owned)
        .collect();
    let own = "-path /run/cni -o -path /run/cnibox -o -path /run/netns -o -path /var/lib/cni -o -path /run/xtables.lock";
    let listing = format!("find /run /var/lib \\( {own} \\) -prune -o -type f -print -exec cat {{}} +; true");
    lines.extend(net.run("sh", &["-c", &listing]).lines().map(str::to_owned));
    lines.join("\n")
}

/// A random change somewhere in a document.
fn mutate(value: &mut Value, random: &mut Random) {
    match value {
        Value::Object(members) if !members.is_empty() && random.below(8) > 0 => {
            let at = random.below(members.len());
            let Some(key) = members.keys().nth(at).cloned() else { return };
            // Where it keeps its files and what it stands on is the operator's to say.
            if ["dataDir", "master"].contains(&key.as_str()) {
                return;
            }
            match random.below(12) {
                0 => drop(members.remove(&key)),
                1 => {
                    let taken = members.remove(&key).unwrap_or_default();
                    members.insert(random.pick(TEXTS).to_string(), taken);
                }
                _ => mutate(&mut members[&key], random),
            }
        }
        Value::Array(items) if !items.is_empty() && random.below(8) > 0 => {
            let at = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                _ => mutate(&mut items[at], random),
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => *value = replacement(random),
    }
}

fn replacement(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!([]),
        3 => json!({}),
        4 => json!([[[[[[[["deep"]]]]]]]]),
        5 => json!(random.pick(&[-1_i64, 0, 1, 65_535, 65_536, 70_000, i64::MAX, i64::MIN])),
        6 => json!(1.5e300),
        _ => json!(random.pick(TEXTS)),
    }
}

/// A call with something hostile in it.
fn hostile_call(world: &World<'_>, target: &Target, result: &Value, random: &mut Random) -> Call {
    let verb = *random.pick(&["ADD", "ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION", "EVIL"]);
    let index = random.below(world.network.plugins.len() + 2);
    let plugin = match index.checked_sub(world.network.plugins.len()) {
        None => world.network.kind(index),
        Some(0) => "host-local",
        // Some plugin with another's configuration; a device is only lent where the operator says which.
        Some(_) => *random.pick(cnibox_testkit::PLUGINS),
    };
    let plugin = if ["dhcp", "host-device"].contains(&plugin) { "loopback" } else { plugin }.to_owned();
    let index = if plugin == "host-local" { world.network.main() } else { index };
    let mut conf = world.network.conf(index.min(world.network.plugins.len() - 1), result);
    if verb == "GC" {
        conf["cni.dev/valid-attachments"] = json!([
            {"containerID": world.neighbour.id, "ifname": "eth0"}, {"containerID": random.pick(TEXTS), "ifname": random.pick(TEXTS)}]);
    }
    for _ in 0..random.below(4) {
        mutate(&mut conf, random);
    }
    if conf["name"] == SENTINEL {
        conf["name"] = json!("net");
    }
    let mut stdin = conf.to_string();
    match random.below(12) {
        0 => stdin.truncate(
            (0..=random.below(stdin.len()))
                .rev()
                .find(|end| stdin.is_char_boundary(*end))
                .unwrap_or_default(),
        ),
        1 => stdin.push_str(&stdin.clone()),
        2 => stdin = "[".repeat(100_000),
        _ => {}
    }
    let mut call = Call { side: world.side, plugin, env: Vec::new(), stdin, under: Vec::new() }
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &target.id)
        .env("CNI_NETNS", &target.netns)
        .env("CNI_IFNAME", &target.ifname);
    if random.below(3) == 0 {
        let name = *random.pick(&["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH", "CNI_ARGS"]);
        let text = random.pick(TEXTS).replace('\u{0}', "\u{1}");
        let text = if name == "CNI_CONTAINERID" { text.replace(SENTINEL, "pod") } else { text };
        // Only the container's own namespace may be entered; the runtime says which that is.
        let text = if name == "CNI_ARGS" {
            format!("IgnoreUnknown=1;IP={text};GATEWAY={text};{text}")
        } else {
            text
        };
        call = call.env(name, &text);
    }
    call
}

#[test]
fn no_input_makes_a_verb_panic_hang_or_reach_out() {
    for side in sides() {
        let mut tally = Tally::default();
        let networks = vec![
            networks::v4(),
            networks::native(),
            networks::spoofchk(),
            networks::routed(),
            networks::stacked(),
            networks::fixed(),
            networks::tap(),
            networks::laden(),
        ];
        on_each(networks, side, |number, world| {
            torment(world, Random::new(0xbad + number as u64), &mut tally)
        });
        tally.close("hostile configuration, environment, arguments, prevResult", side);
    }
}

/// Hostile calls of every verb, one after the other, on one network.
fn torment(world: &World<'_>, mut random: Random, tally: &mut Tally) {
    plant_sentinels(world.net);
    let target = Target::of(&world.net.container());
    let result = world.add(&target).expect("ADD");
    let mut before = sentinels(world.net);
    for turn in 0..rounds(100, 1200) {
        let call = hostile_call(world, &target, &result, &mut random);
        let mut problem = outcome(&call);
        if turn % 20 == 19 || !problem.is_empty() {
            let now = sentinels(world.net);
            problem.push_str(&diff(&before, &now));
            before = now;
        }
        tally.count(&format!("{call:?}"), &problem);
    }
    // And it still does its work.
    let pod = Target::of(&world.net.container());
    let worked = world.add(&pod).and_then(|result| world.del(&pod, &result));
    tally.count(
        "ADD and DEL after all that",
        &worked.err().map(|answer| format!("{answer:?}")).unwrap_or_default(),
    );
}

/// What is wrong with how the call ended.
fn outcome(call: &Call) -> String {
    let mut child = call.start();
    if let Some(answer) = wait(&mut child, Duration::from_secs(20)) {
        return answer.unclean().unwrap_or_default();
    }
    let _ = child.kill();
    let _ = child.wait();
    "hangs".to_owned()
}

/// The directory in which the ledger has a container's records.
fn shelf(container: &str) -> String {
    cnibox_spec::sha512_prefix(&[container], 2)
}

#[test]
fn links_in_state_directories_are_not_followed() {
    let places = [
        "/run/cni/net-v4/10.61.0.3",
        "/run/cni/net-v4/last_reserved_ip.0",
        "/run/cni/net-v4/lock",
        "/run/cnibox/host-local",
        "/run/cnibox/attachments",
        "/run/cnibox/attachments/SHELF",
        "/run/cnibox/addresses",
        "/run/cnibox/addresses/net-v4",
    ];
    for place in places {
        for network in [networks::v4(), networks::native(), networks::spoofchk()] {
            // The reservations are the same for all.
            if place.starts_with("/run/cni/") && network.label != "v4" {
                continue;
            }
            sandbox(|net| {
                let world =
                    World::new(net, networks::Network { name: "net-v4".to_owned(), ..network }, Side::Ours);
                let target = Target::of(&net.container());
                let directory = Path::new("/run/testkit/elsewhere");
                fs::create_dir(directory).expect("a directory");
                fs::write(directory.join("file"), "precious").expect("a file");
                let place = place.replace("SHELF", &shelf(&target.id));
                let place = Path::new(&place);
                let goal = if place.starts_with("/run/cni/") {
                    directory.join("file")
                } else {
                    directory.to_owned()
                };
                let _ = fs::remove_file(place);
                let _ = fs::remove_dir_all(place);
                fs::create_dir_all(place.parent().expect("a parent")).expect("the parent");
                symlink(&goal, place).expect("plant a link");
                let untouched = |after: &str| {
                    let entries = fs::read_dir(directory).expect("a directory").flatten();
                    let files: Vec<_> = entries.map(|entry| entry.file_name()).collect();
                    assert_eq!(files, ["file"], "{after}, by way of {}", place.display());
                    let content = fs::read_to_string(directory.join("file")).expect("a file");
                    assert_eq!(content, "precious", "{after}, by way of {}", place.display());
                };
                // It may work or be refused, and says which; it must not follow, not even for as long as the container
                // lives. Notes are no reason to refuse; reservations, and their lock, are.
                let by_way = |said: &dyn std::fmt::Debug| format!("{said:?}, by way of {}", place.display());
                let added = world.add(&target);
                untouched("ADD");
                assert_eq!(added.is_ok(), world.has_interface(&target), "{}", by_way(&added));
                assert!(added.is_ok() || place.starts_with("/run/cni/"), "{}", by_way(&added));
                let deleted = world.del(&target, &added.unwrap_or_default());
                assert!(deleted.is_ok() || place.ends_with("lock"), "{}", by_way(&deleted));
                let collected = world.gc(Some(&[]));
                assert!(collected.is_ok() || place.ends_with("lock"), "{}", by_way(&collected));
                untouched("DEL and GC");
                assert!(!world.has_interface(&target), "DEL, by way of {}", place.display());
            });
        }
    }
}

#[test]
fn what_users_may_write_into_rules_stays_one_rule() {
    for text in ["-j", "x\nCOMMIT\n*nat\n-F", "CNI-ADMIN\"", "a b", "!x"] {
        let changed = with_text_in_rules(text);
        assert!(changed.is_empty(), "{text:?}:\n{changed}");
    }
    // A name for a chain like any other, if nobody reads it twice. Like every chain for overrides it stays.
    let text = "$(id)`id`";
    for line in with_text_in_rules(text).lines() {
        let own = line.starts_with('+')
            && (line.contains(text)
                || ["+ }", "+ "].contains(&line.trim_end())
                || line.trim_end().ends_with("\t}"));
        assert!(own, "{line}");
    }
}

/// What has changed after ADD, which must fail in the end, and DEL with this text where rules are made of it.
fn with_text_in_rules(text: &str) -> String {
    let mut changed = String::new();
    sandbox(|net| {
        plant_sentinels(net);
        let world = World::new(net, networks::v4(), Side::Ours);
        let mut network = world.network.clone();
        network.plugins[1]["iptablesAdminChainName"] = json!(text);
        network.plugins[2]["conditionsV4"] = json!(["-s", text]);
        let (before, host) = (sentinels(net), world.host());
        let hostile = world.with(network);
        let target = Target::of(&net.container());
        let result = hostile.add(&target).unwrap_or_default();
        assert!(result.is_null(), "{text:?} is no address");
        hostile.del(&target, &Value::Null).unwrap_or_else(|answer| panic!("DEL: {answer:?}"));
        changed = diff(&before, &sentinels(net)) + &world.left(&host, &target);
    });
    changed
}

/// A plugin of somebody else that manages addresses, and needs a process and threads to be asked.
pub(crate) const FOREIGN_IPAM: &str = "#!/bin/sh\ncat >/dev/null\necho '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.64.0.9/24\",\"gateway\":\"10.64.0.1\"}]}'\n";

/// A network whose addresses come from this script.
pub(crate) fn with_foreign_ipam(script: &str) -> networks::Network {
    let dir = Side::Ours.dir().expect("our plugins");
    fs::write(dir.join("foreign-ipam"), script).expect("write a plugin");
    fs::set_permissions(dir.join("foreign-ipam"), fs::Permissions::from_mode(0o755))
        .expect("make it a program");
    let mut network = networks::routed();
    network.interface()["ipam"] = json!({"type": "foreign-ipam"});
    network
}

#[test]
fn threads_that_are_refused_leave_nothing() {
    sandbox(|net| {
        crate::fixture::install();
        let world = World::new(net, with_foreign_ipam(FOREIGN_IPAM), Side::Ours);
        let before = world.host();
        let mut refused = 0;
        for when in 1..=6 {
            let target = Target::of(&net.container());
            let inject = format!("inject=clone,clone3,fork,vfork:error=EAGAIN:when={when}");
            let under =
                ["strace", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3,fork,vfork", "-e", &inject];
            let call = Call {
                under: under.map(str::to_owned).to_vec(),
                ..world.call(0, "ADD", &target, &Value::Null)
            };
            let answer = call.run();
            assert_eq!(answer.unclean(), None, "clone {when}");
            if !answer.ok() {
                refused += 1;
                assert_eq!(world.left(&before, &target), "", "clone {when}: {answer:?}");
            } else {
                let check = world.call(0, "CHECK", &target, &answer.json()).run();
                assert!(check.ok(), "clone {when}: {check:?}");
            }
            world.del(&target, &answer.json()).unwrap_or_else(|answer| panic!("DEL: {answer:?}"));
            world.bury(&target);
        }
        assert!(refused > 0, "ADD without a thread succeeded each time");
    });
}

#[test]
fn a_delegate_that_does_not_stop_talking_is_stopped() {
    sandbox(|net| {
        crate::fixture::install();
        // The last one leaves a process behind that keeps what it says on stderr from ending.
        for endless in ["exec yes", "exec yes >&2", "sleep 60 >/dev/null & exec yes"] {
            let world = World::new(net, with_foreign_ipam(FOREIGN_IPAM), Side::Ours);
            let before = world.host();
            let _ = with_foreign_ipam(&format!("#!/bin/sh\n{endless}\n"));
            let target = Target::of(&net.container());
            let began = Instant::now();
            let answer = world.call(0, "ADD", &target, &Value::Null).run();
            assert!(!answer.ok() && answer.unclean().is_none(), "{answer:?}");
            assert!(began.elapsed() < Duration::from_secs(30), "{endless}");
            assert_eq!(world.left(&before, &target), "");
            let _ = with_foreign_ipam(FOREIGN_IPAM);
        }
    });
}

/// A limit that a runtime or a service manager may have set ends the call with an error and not with its signal.
#[test]
fn files_that_may_not_grow_are_an_error() {
    sandbox(|net| {
        let world = World::new(net, networks::v4(), Side::Ours);
        let before = world.host();
        let target = Target::of(&net.container());
        let call = Call {
            under: ["prlimit", "--fsize=0"].map(str::to_owned).to_vec(),
            ..world.call(world.network.main(), "ADD", &target, &Value::Null)
        };
        let answer = call.run();
        assert!(!answer.ok() && answer.unclean().is_none(), "{answer:?}");
        assert_eq!(world.left(&before, &target), "");
    });
}
