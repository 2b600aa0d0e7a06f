// SPDX-License-Identifier: Apache-2.0
//! Configurations that nobody would write: every field of every plugin with values that are extreme, of another type,
//! huge or the configuration itself, for every verb. Each call is bounded, and answers with one document or none.

use std::io::Read;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cnibox_testkit::PLUGINS;
use serde_json::{Value, json};

use crate::fixture::{Answer, Call, Side, Target, World, on_all, wait};
use crate::networks;
use crate::report::{Random, Tally, rounds};

/// What a call may take, in seconds of processor time and in bytes of memory.
const SECONDS: u64 = 2;
const MEMORY: u64 = 128 << 20;

/// The fields that plugins read, and some that are everybody's. Of those with a place on the host only ones that may be
/// wrong: `dataDir`, `socketPath` and `master` are the operator's.
const FIELDS: &[&str] = &[
    "cniVersion",
    "name",
    "type",
    "ipam",
    "dns",
    "args",
    "prevResult",
    "runtimeConfig",
    "capabilities",
    "bridge",
    "isGateway",
    "isDefaultGateway",
    "forceAddress",
    "ipMasq",
    "ipMasqBackend",
    "mtu",
    "hairpinMode",
    "promiscMode",
    "vlan",
    "vlanTrunk",
    "preserveDefaultVlan",
    "macspoofchk",
    "enabledad",
    "portIsolation",
    "disableContainerInterface",
    "mode",
    "linkInContainer",
    "mac",
    "vlanId",
    "multiQueue",
    "owner",
    "group",
    "selinuxContext",
    "backend",
    "snat",
    "masqAll",
    "markMasqBit",
    "externalSetMarkChain",
    "conditionsV4",
    "conditionsV6",
    "iptablesAdminChainName",
    "firewalldZone",
    "ingressPolicy",
    "sysctl",
    "promisc",
    "allmulti",
    "txQLen",
    "ingressRate",
    "ingressBurst",
    "egressRate",
    "egressBurst",
    "unshapedSubnets",
    "shapedSubnets",
    "table",
    "addSourceHints",
    "vrfname",
    "bcqueuelen",
    "cni.dev/valid-attachments",
];
const IPAM_FIELDS: &[&str] = &[
    "type",
    "routes",
    "ranges",
    "subnet",
    "rangeStart",
    "rangeEnd",
    "gateway",
    "resolvConf",
    "addresses",
    "dns",
    "exclude",
    "sticky",
    "reclaimOnBoot",
    "provide",
    "request",
    "skipDefault",
];
const RUNTIME_FIELDS: &[&str] =
    &["portMappings", "bandwidth", "mac", "ips", "ipRanges", "infinibandGUID", "deviceID", "aliases"];
const VERBS: &[&str] = &["ADD", "ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"];

/// Something nobody expects there; `conf` is the whole configuration and `old` what was there.
fn extreme(conf: &Value, old: &Value, random: &mut Random) -> Value {
    let many = |value: Value, count: usize| Value::Array(vec![value; count]);
    match random.below(26) {
        0 => Value::Null,
        1 => json!(random.below(2) == 0),
        2 => json!(random.pick(&[
            -1_i64,
            0,
            1,
            255,
            256,
            65_535,
            65_536,
            i64::from(i32::MAX),
            i64::MIN,
            i64::MAX
        ])),
        3 => json!(u64::MAX),
        4 => json!(random.pick(&[1e300, -1e300, 0.5, 1e-300])),
        5 => json!(""),
        6 => json!("a".repeat(*random.pick(&[15, 16, 256, 4096, 70_000, 1_000_000]))),
        7 => json!("\u{0}\u{1}\u{7f}\u{85}\u{2028}\u{fffd}"),
        8 => json!("💥".repeat(5000)),
        9 => json!([]),
        10 => json!({}),
        11 => (0..*random.pick(&[20, 120, 300])).fold(json!(1), |inner, _| json!([inner])),
        12 => (0..*random.pick(&[20, 200])).fold(json!(1), |inner, _| json!({"ipam": inner, "x": 1})),
        13 => many(json!(0), *random.pick(&[1000, 500_000])),
        14 => many(json!({}), 100_000),
        15 => many(old.clone(), *random.pick(&[2, 17, 1000])),
        16 => (0..5000).map(|number| (format!("key{number}"), json!(number))).collect(),
        17 => conf.clone(),
        18 => json!([conf, conf]),
        19 => json!(old.to_string()),
        20 => many(json!({"subnet": "10.0.0.0/8"}), 300),
        21 => json!([[{"subnet": "::/0"}], [{"subnet": "0.0.0.0/0"}]]),
        22 => json!(*random.pick(&[
            "0.0.0.0/0",
            "::/0",
            "255.255.255.255/32",
            "10.0.0.0/8",
            "fd00::/8",
            "10.1.2.3"
        ])),
        23 => many(json!({"hostPort": 1, "containerPort": 1, "protocol": "tcp"}), 3000),
        24 => many(json!({"dst": "10.9.0.0/16", "gw": "10.61.0.1"}), 1000),
        _ => many(json!("x"), 20_000),
    }
}

/// Puts something extreme somewhere.
fn distort(conf: &mut Value, random: &mut Random) {
    let whole = conf.clone();
    let (fields, place) = match random.below(4) {
        0 => (IPAM_FIELDS, "ipam"),
        1 => (RUNTIME_FIELDS, "runtimeConfig"),
        _ => (FIELDS, ""),
    };
    let field = *random.pick(fields);
    let object = if place.is_empty() { conf } else { &mut conf[place] };
    if !object.is_object() {
        *object = json!({});
    }
    let old = object[field].clone();
    object[field] = extreme(&whole, &old, random);
}

/// How many calls: `CNIBOX_CALLS`, or the usual number.
fn calls() -> usize {
    std::env::var("CNIBOX_CALLS")
        .ok()
        .and_then(|calls| calls.parse().ok())
        .unwrap_or_else(|| rounds(600, 20_000))
}

/// Where the calls begin: `CNIBOX_CALLS_SEED`, or always the same.
fn seed() -> u64 {
    std::env::var("CNIBOX_CALLS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x6e6e)
}

fn call(world: &World<'_>, target: &Target, result: &Value, random: &mut Random) -> Call {
    let own = random.below(world.network.plugins.len());
    let mut conf = world.network.conf(own, result);
    // Sometimes another plugin's. A device is lent, and a lease asked for, only where the operator says so.
    let other = *random.pick(PLUGINS);
    let kept = random.below(3) > 0 || ["host-device", "dhcp"].contains(&other);
    let plugin = if kept { world.network.kind(own) } else { other }.to_owned();
    for _ in 0..=random.below(3) {
        distort(&mut conf, random);
    }
    // What stands on the host's links, and is called like them, is the operator's.
    if ["lo", "uplink0", "uplink"].iter().any(|link| conf["bridge"] == *link) {
        conf["bridge"] = json!("br-gen");
    }
    Call {
        side: Side::Ours,
        plugin,
        env: Vec::new(),
        stdin: conf.to_string(),
        under: ["prlimit", &format!("--as={MEMORY}"), &format!("--cpu={SECONDS}")]
            .map(str::to_owned)
            .to_vec(),
    }
    .env("CNI_COMMAND", random.pick::<&str>(VERBS))
    .env("CNI_CONTAINERID", &target.id)
    .env("CNI_NETNS", &target.netns)
    .env("CNI_IFNAME", &target.ifname)
}

/// What is wrong with how a call ended. Its time is its own processor's, since the machine may be busy; one that waits is
/// found by the clock.
fn outcome(call: &Call) -> String {
    let begun = Instant::now();
    let mut child = call.start();
    // An error repeats what it is about, which may be more than a pipe holds.
    let stdout = child.stdout.take().map(read_on);
    let stderr = child.stderr.take().map(read_on);
    let Some(answer) = wait(&mut child, Duration::from_secs(20)) else {
        let _ = child.kill();
        let _ = child.wait();
        return format!("no answer after {:?}", begun.elapsed());
    };
    let text = |reader: Option<JoinHandle<String>>| {
        reader.map(|reader| reader.join().expect("read")).unwrap_or_default()
    };
    Answer { stdout: text(stdout), stderr: text(stderr), ..answer }.unclean().unwrap_or_default()
}

fn read_on(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[test]
fn whatever_a_configuration_says_a_call_is_bounded_and_answers_once() {
    let tally = Mutex::new(Tally::default());
    let count = |what: &str, problem: &str| tally.lock().expect("count").count(what, problem);
    let all = vec![
        networks::v4(),
        networks::dual(),
        networks::native(),
        networks::spoofchk(),
        networks::isolated(),
        networks::routed(),
        networks::stacked(),
        networks::fixed(),
        networks::tap(),
        networks::laden(),
    ];
    let each = calls() / all.len();
    let seed = seed();
    on_all(all, Side::Ours, |number, world| {
        let mut random = Random::new(seed + number as u64);
        for turn in 0..each {
            // Every now and then one that is well and lives.
            let target = Target::of(&world.net.container());
            let result = if turn % 10 == 0 { world.add(&target).unwrap_or_default() } else { Value::Null };
            let call = call(world, &target, &result, &mut random);
            let problem = outcome(&call);
            let label = |problem: &str| {
                // A call may have megabytes: of one that went well nobody asks.
                let shown = if problem.is_empty() { String::new() } else { format!("{call:?}") };
                let brief: String = shown.chars().take(3000).collect();
                format!("seed {seed}, call {turn} on {}: {brief}", world.network.label)
            };
            count(&label(&problem), &problem);
            if turn % 10 == 0 {
                let taken_down = world.del(&target, &result).err();
                let problem =
                    taken_down.map(|answer| format!("DEL afterwards: {answer:?}")).unwrap_or_default();
                count(&label(&problem), &problem);
            }
            world.bury(&target);
        }
        // Nobody else has noticed. A bridge that was asked to be promiscuous stays so, with the Go plugins as well.
        if let Some(bridge) = world.network.clone().interface()["bridge"].as_str() {
            world.net.run("ip", &["link", "set", bridge, "promisc", "off"]);
        }
        let pod = Target::of(&world.net.container());
        let worked = world
            .add(&pod)
            .and_then(|result| world.check(&pod, &result).and_then(|()| world.del(&pod, &result)));
        count(
            "ADD, CHECK and DEL after all that",
            &worked.err().map(|answer| format!("{answer:?}")).unwrap_or_default(),
        );
    });
    tally.into_inner().expect("counted").close("extreme configuration", Side::Ours);
}
