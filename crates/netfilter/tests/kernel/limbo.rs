// SPDX-License-Identifier: Apache-2.0
//! A socket that was given up behind a deletion keeps nothing for long.

use std::time::{Duration, Instant};

use cnibox_netfilter::xt::{Family, Match, Rule, Table, Target};
use cnibox_netfilter::{Batch, Position};

use crate::common::{engine, in_netns, run};

/// The far end of a pair goes with the namespace of the other.
#[test]
fn a_namespace_ends_after_the_sweep() {
    in_netns(|| {
        let outside = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let id = std::os::fd::AsRawFd::as_raw_fd(&outside).to_string();
            let far = format!("/proc/{}/fd/{id}", std::process::id());
            run("ip", &["link", "add", "near0", "type", "veth", "peer", "name", "far0", "netns", &far]);
            let rule = Rule::new(vec![Match::comment("soon gone")], Target::Accept);
            let mut engine = engine();
            let mut batch = Batch::new();
            batch.xt(Family::Ipv4, Table::Filter).ensure_rule("FORWARD", rule.clone(), Position::Tail);
            engine.apply(&batch).unwrap();
            let mut batch = Batch::new();
            batch.xt(Family::Ipv4, Table::Filter).delete_rule("FORWARD", rule);
            engine.apply(&batch).unwrap();
        })
        .join()
        .unwrap();
        // The sweep of another process; this one has given up a socket.
        drop(std::os::unix::net::UnixStream::pair().unwrap());
        let deadline = Instant::now() + Duration::from_secs(5);
        while run("ip", &["-o", "link"]).contains("far0") {
            assert!(Instant::now() < deadline, "the namespace is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}
