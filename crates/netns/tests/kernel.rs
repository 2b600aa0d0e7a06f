// SPDX-License-Identifier: Apache-2.0
//! Entering and comparing namespaces, and sysctls inside them.

use std::process::Command;

use cnibox_netns::{Error, NetNs, is_current, sysctl};
use cnibox_testkit::{anonymous, sandbox};

#[test]
fn running_inside_a_namespace_always_returns() {
    sandbox(|net| {
        let pod = net.container();
        let inside = pod.netns.run(|| pod.netns.same_as_current().unwrap()).unwrap();
        assert!(inside);
        assert!(net.netns().same_as_current().unwrap());
        let failed: Result<(), &str> = pod.netns.run(|| Err("early")).unwrap();
        assert!(failed.is_err());
        assert!(net.netns().same_as_current().unwrap());
        let panicked = std::panic::catch_unwind(|| pod.netns.run(|| panic!("inside")));
        assert!(panicked.is_err());
        assert!(net.netns().same_as_current().unwrap());
    });
}

#[test]
fn runs_nest() {
    sandbox(|net| {
        let (one, two) = (net.container(), net.container());
        let inner = || assert!(is_current(&two.path) && !is_current(&one.path));
        let outer = || {
            two.netns.run(inner).unwrap();
            assert!(is_current(&one.path));
        };
        one.netns.run(outer).unwrap();
        assert!(net.netns().same_as_current().unwrap());
    });
}

/// The caller becomes the root of a user namespace that owns the container's namespace and not its own.
#[test]
fn a_thread_that_could_not_come_back_does_not_go() {
    sandbox(|net| {
        let child = std::env::current_exe().unwrap();
        let inner = ["--exact", "inside_of_a_user_namespace", "--ignored", "--nocapture"];
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--"]).arg(child).args(inner);
        let output = net.netns().run(|| command.output().unwrap()).unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{output:?}");
    });
}

/// Run by the test before it.
#[test]
#[ignore = "wants a user namespace of its own"]
fn inside_of_a_user_namespace() {
    let home = NetNs::current().unwrap().identity().unwrap();
    let pod = anonymous();
    assert!(pod.run(|| pod.same_as_current().unwrap()).unwrap());
    let failed: Result<(), &str> = pod.run(|| Err("early")).unwrap();
    assert!(failed.is_err());
    assert_eq!(NetNs::current().unwrap().identity().unwrap(), home);
}

#[test]
fn a_namespace_is_its_path_until_that_is_unbound() {
    sandbox(|net| {
        let pod = net.container();
        assert_eq!(NetNs::open(&pod.path).unwrap().identity().unwrap(), pod.netns.identity().unwrap());
        assert!(!pod.netns.same_as_current().unwrap());
        net.run("ip", &["netns", "delete", &pod.id]);
        assert!(NetNs::open(&pod.path).unwrap_err().is_gone());
    });
}

#[test]
fn a_file_left_behind_by_an_unmount_is_an_error_but_not_gone() {
    sandbox(|net| {
        let path = net.dir().join("left");
        std::fs::write(&path, "").unwrap();
        let error = NetNs::open(&path).unwrap_err();
        assert!(matches!(error, Error::NotANamespace { .. }) && !error.is_gone());
        // tmpfs
        assert_eq!(error.to_string(), format!("unknown FS magic on \"{}\": 1021994", path.display()));
    });
}

#[test]
fn sysctls_are_the_namespaces_own() {
    sandbox(|net| {
        let pod = net.container();
        let name = sysctl::conf("ipv4", "lo", "arp_notify");
        assert_eq!(sysctl::read(&name).unwrap(), "0");
        pod.netns.run(|| sysctl::write(&name, "1")).unwrap().unwrap();
        assert_eq!(pod.netns.run(|| sysctl::read(&name)).unwrap().unwrap(), "1");
        assert_eq!(sysctl::read(&name).unwrap(), "0");
        assert!(sysctl::ensure("net.ipv4.ip_forward", "1").unwrap());
        assert!(!sysctl::ensure("net.ipv4.ip_forward", "1").unwrap());
        let refused = sysctl::write(&name, "nonsense").unwrap_err();
        assert_eq!(refused.to_string(), "write /proc/sys/net/ipv4/conf/lo/arp_notify: invalid argument");
    });
}
