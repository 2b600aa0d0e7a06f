// SPDX-License-Identifier: Apache-2.0
//! ADD is all or nothing: every step of every plugin fails in turn, and the host is as before.

use std::os::unix::fs::symlink;
use std::path::Path;

use cnibox_harness::{Plugin, run};
use cnibox_sys::{Entry, Env, Host, Registry};
use cnibox_testkit::sandbox;
use serde_json::Value;

use crate::fixture::{Answer, Call, Side, Target, World};
use crate::networks;
use crate::report::Tally;

static PLUGINS: &[(&str, Entry)] = &[
    (cnibox_bridge::Bridge::NAME, run::<cnibox_bridge::Bridge>),
    (cnibox_firewall::Firewall::NAME, run::<cnibox_firewall::Firewall>),
    (cnibox_host_local::HostLocal::NAME, run::<cnibox_host_local::HostLocal>),
    (cnibox_portmap::Portmap::NAME, run::<cnibox_portmap::Portmap>),
];

/// Runs a call in this process. Delegates are this very executable, as far as the plugin can tell.
fn in_process(call: &Call, fail_at: Option<usize>) -> Answer {
    let path = Path::new("/run/testkit/self");
    if std::fs::create_dir(path).is_ok() {
        let own = std::env::current_exe().expect("the test's own path");
        symlink(own, path.join("host-local")).expect("link a plugin");
    }
    let vars = call.env.iter().map(|(name, value)| (name.into(), value.into()));
    let env = vars
        .collect::<Env>()
        .with("CNI_PATH", path)
        .with("PATH", std::env::var_os("PATH").unwrap_or_default());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let registry = Registry(PLUGINS);
    let entry = registry.find(&call.plugin).expect("a plugin of the table");
    let exit = entry(&mut Host {
        env,
        stdin: &mut call.stdin.as_bytes(),
        stdout: &mut stdout,
        stderr: &mut stderr,
        registry,
        fail_at,
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { status: Some(exit.into()), stdout: text(&stdout), stderr: text(&stderr) }
}

/// Fails every step of the plugin at `index`, until none is left; its result then.
fn fail_each_step(
    world: &World<'_>,
    index: usize,
    target: &Target,
    prev: &Value,
    tally: &mut Tally,
) -> Value {
    let call = world.call(index, "ADD", target, prev);
    let before = world.host();
    let pod_before = world.net.run("ip", &["netns", "exec", &target.id, "ip", "-j", "address"]);
    for step in 1.. {
        let what = format!("{} on {}, step {step}", call.plugin, world.network.label);
        let answer = in_process(&call, Some(step));
        if answer.ok() {
            assert!(step > 1, "{what}: there are no steps");
            return answer.json();
        }
        let message = answer.json()["msg"].as_str().unwrap_or_default().to_owned();
        assert_eq!(message, format!("step {step} told to fail"), "{what}");
        assert!(answer.json()["details"].is_null(), "{what}: the undo failed: {answer:?}");
        // The interface comes and goes with a number of its own, nothing else may differ.
        let mut left = cnibox_testkit::diff(&before, &world.host());
        if !left.is_empty() {
            left = world.left(&before, target);
        }
        if index == 0 {
            let pod = world.net.run("ip", &["netns", "exec", &target.id, "ip", "-j", "address"]);
            left.push_str(&cnibox_testkit::diff(&pod_before, &pod));
        }
        tally.count(&what, &left);
    }
    Value::Null
}

#[test]
fn whatever_step_of_add_fails_the_host_is_as_before() {
    let mut tally = Tally::default();
    for network in networks::all() {
        sandbox(|net| {
            let world = World::new(net, network.clone(), Side::Ours);
            let before = world.host();
            let target = Target::of(&net.container());
            let mut result = Value::Null;
            for index in 0..world.network.plugins.len() {
                result = fail_each_step(&world, index, &target, &result, &mut tally);
            }
            // What came out in the end is a whole attachment, and it goes without a trace.
            world.check(&target, &result).unwrap_or_else(|answer| panic!("CHECK: {answer:?}"));
            world.del(&target, &result).unwrap_or_else(|answer| panic!("DEL: {answer:?}"));
            tally.count(&format!("DEL on {}", network.label), &world.left(&before, &target));
        });
    }
    tally.close("ADD fails at a step, every step in turn", Side::Ours);
}
