// SPDX-License-Identifier: Apache-2.0
//! Entering, comparing, creating and deleting namespaces, and sysctls inside them.

use cnibox_netns::{Error, NetNs, create_at, delete_at, is_current, sysctl};
use cnibox_testkit::sandbox;

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
fn guards_know_the_way_home_and_nest() {
    sandbox(|net| {
        let (one, two) = (net.container(), net.container());
        let outer = one.netns.enter().unwrap();
        assert_eq!(outer.home().identity().unwrap(), net.netns().identity().unwrap());
        let inner = two.netns.enter().unwrap();
        assert!(is_current(&two.path) && !is_current(&one.path));
        drop(inner);
        assert!(is_current(&one.path));
        drop(outer);
        assert!(net.netns().same_as_current().unwrap());
    });
}

#[test]
fn namespaces_bound_to_a_path_come_and_go() {
    sandbox(|net| {
        let path = net.dir().join("ns");
        let ns = create_at(&path).unwrap();
        assert_eq!(NetNs::open(&path).unwrap().identity().unwrap(), ns.identity().unwrap());
        assert!(!ns.same_as_current().unwrap());
        let taken = create_at(&path).unwrap_err();
        assert_eq!(taken.to_string(), format!("create netns \"{}\": file exists", path.display()));
        delete_at(&path).unwrap();
        assert!(NetNs::open(&path).unwrap_err().is_gone());
        assert_eq!(delete_at(&path).unwrap_err().errno(), Some(2));
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
        delete_at(&path).unwrap();
    });
}

#[test]
fn anonymous_namespaces_are_new_and_do_not_move_the_caller() {
    sandbox(|net| {
        let (one, two) = (NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap());
        assert_ne!(one.identity().unwrap(), two.identity().unwrap());
        assert!(net.netns().same_as_current().unwrap());
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
