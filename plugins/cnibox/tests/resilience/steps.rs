// SPDX-License-Identifier: Apache-2.0
//! ADD is all or nothing: every step of every plugin fails in turn, and the host is as before.

use std::os::unix::fs::symlink;
use std::path::Path;

use cnibox_harness::builtin;
use cnibox_sys::{Builtin, Env, Host, Registry};
use cnibox_testkit::Container;
use serde_json::Value;

use crate::fixture::{Answer, Call, Side, Target, World, on_each};
use crate::networks::{self, Network};
use crate::report::Tally;

static PLUGINS: &[Builtin] = &[
    builtin::<cnibox_bandwidth::Bandwidth>(),
    builtin::<cnibox_bridge::Bridge>(),
    builtin::<cnibox_dummy::Dummy>(),
    builtin::<cnibox_firewall::Firewall>(),
    builtin::<cnibox_host_device::HostDevice>(),
    builtin::<cnibox_host_local::HostLocal>(),
    builtin::<cnibox_ipvlan::Ipvlan>(),
    builtin::<cnibox_loopback::Loopback>(),
    builtin::<cnibox_macvlan::Macvlan>(),
    builtin::<cnibox_portmap::Portmap>(),
    builtin::<cnibox_ptp::Ptp>(),
    builtin::<cnibox_sbr::Sbr>(),
    builtin::<cnibox_static::Static>(),
    builtin::<cnibox_tap::Tap>(),
    builtin::<cnibox_tuning::Tuning>(),
    builtin::<cnibox_vlan::Vlan>(),
    builtin::<cnibox_vrf::Vrf>(),
];

/// Runs a call in this process. Delegates are this very executable, as far as the plugin can tell.
fn in_process(call: &Call, fail_at: Option<usize>) -> Answer {
    let path = Path::new("/run/testkit/self");
    if std::fs::create_dir(path).is_ok() {
        let own = std::env::current_exe().expect("the test's own path");
        for ipam in ["host-local", "static"] {
            symlink(&own, path.join(ipam)).expect("link a plugin");
        }
    }
    let vars = call.env.iter().map(|(name, value)| (name.into(), value.into()));
    let env = vars
        .collect::<Env>()
        .with("CNI_PATH", path)
        .with("PATH", std::env::var_os("PATH").unwrap_or_default());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let registry = Registry(PLUGINS);
    let plugin = registry.find(&call.plugin).expect("a plugin of the table");
    let exit = (plugin.entry)(&mut Host {
        env,
        stdin: &mut call.stdin.as_bytes(),
        stdout: &mut stdout,
        stderr: &mut stderr,
        registry,
        fail_at,
    });
    cnibox_testkit::await_unlocked();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { status: Some(exit.into()), stdout: text(&stdout), stderr: text(&stderr) }
}

/// Fails every step of the plugin at `index`, until none is left; its result then.
fn fail_each_step(
    world: &World<'_>,
    index: usize,
    pod: &Container,
    prev: &Value,
    tally: &mut Tally,
) -> Value {
    let target = Target::of(pod);
    let call = world.call(index, "ADD", &target, prev);
    // The kernel makes a rule of its own with the first VRF, which stays.
    let inside = || format!("{:?}", world.net.snapshot_of(pod).without("l3mdev"));
    // Whoever fails behind the plugin that made the interface leaves word of it to the next ADD: a note, and the interface's mark.
    let is_word = |line: &str| line.contains("/run/cnibox/attachments") && line.contains(&target.id);
    let mark = |progress: &str| format!("cnibox:{progress}:{}:{}:", world.network.name, target.id);
    let host = || match index == world.network.main() {
        true => world.host(),
        false => world.host().replace(&mark("failed"), &mark("ready")),
    };
    let (before, inside_before) = (host(), inside());
    for step in 1.. {
        let what = format!("{} on {}, step {step}", call.plugin, world.network.label);
        let answer = in_process(&call, Some(step));
        if answer.ok() {
            assert!(step > 1 || call.plugin == "loopback", "{what}: there are no steps");
            return answer.json();
        }
        let message = answer.json()["msg"].as_str().unwrap_or_default().to_owned();
        // Some put words in front of what their IPAM step says.
        assert!(message.ends_with(&format!("step {step} told to fail")), "{what}: {message}");
        assert!(answer.json()["details"].is_null(), "{what}: the undo failed: {answer:?}");
        // The kernel is not done with a link the moment that it is deleted.
        let mut left = String::new();
        for _ in 0..20 {
            left = cnibox_testkit::diff(&before, &host()) + &cnibox_testkit::diff(&inside_before, &inside());
            if left.lines().all(is_word) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let counts = |line: &&str| index == world.network.main() || !is_word(line);
        left = left.lines().filter(counts).map(|line| format!("{line}\n")).collect();
        tally.count(&what, &left);
    }
    Value::Null
}

/// On each network every step of every plugin fails in turn.
pub(crate) fn fail_everywhere(networks: Vec<Network>, tally: &mut Tally) {
    on_each(networks, Side::Ours, |_, world| {
        let before = world.host();
        let pod = world.net.container();
        let target = Target::of(&pod);
        let mut result = Value::Null;
        for index in 0..world.network.plugins.len() {
            result = fail_each_step(world, index, &pod, &result, tally);
        }
        // What came out in the end is a whole attachment, and it goes without a trace.
        world.check(&target, &result).unwrap_or_else(|answer| panic!("CHECK: {answer:?}"));
        world.del(&target, &result).unwrap_or_else(|answer| panic!("DEL: {answer:?}"));
        tally.count(&format!("DEL on {}", world.network.label), &world.left(&before, &target));
    });
}

#[test]
fn whatever_step_of_add_fails_the_host_is_as_before() {
    let mut tally = Tally::default();
    fail_everywhere(networks::all(), &mut tally);
    tally.close("ADD fails at a step, every step in turn", Side::Ours);
}
