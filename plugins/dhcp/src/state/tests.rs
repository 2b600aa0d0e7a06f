// SPDX-License-Identifier: Apache-2.0
use std::os::unix::fs::{PermissionsExt, symlink};

use std::path::PathBuf;

use super::*;

fn scratch() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().to_str().unwrap(), "/run/cni/dhcp.sock");
    (dir, store)
}

fn record(store: &Store, container: &str) -> Record {
    let lease = Lease::granted([10, 0, 0, 9].into(), Some([1, 2, 3, 4, 5, 6]), &[]);
    let holder = Holder {
        container: container.into(),
        network: "n".into(),
        ifname: "eth0".into(),
        netns: "/run/netns/c".into(),
        netns_id: (4, 2),
    };
    let options = Options { provide: vec![(12, "host".into())], request: vec![3] };
    store.record(holder, options, lease)
}

fn path(store: &Store, name: &str) -> PathBuf {
    store.dir.path().join(store.file(name))
}

#[test]
fn what_is_saved_is_there_for_the_next_daemon_at_the_same_socket() {
    let (dir, store) = scratch();
    let (one, other) = (record(&store, "a"), record(&store, "b"));
    assert!(store.all().is_empty());
    store.save(&one).unwrap();
    store.save(&other).unwrap();
    store.save(&one).unwrap();
    assert_eq!(store.load("a/n/eth0"), Some(one));
    assert_eq!(store.load("c/n/eth0"), None);
    assert_eq!(store.all().len(), 2);
    let elsewhere = Store::new(dir.path().to_str().unwrap(), "/other.sock");
    assert!(elsewhere.all().is_empty());
    store.forget("a/n/eth0").unwrap();
    store.forget("a/n/eth0").unwrap();
    assert_eq!(store.all(), [other]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(store.dir.path()), mode(&path(&store, "b/n/eth0"))), (0o700, 0o600));
    store.forget("b/n/eth0").unwrap();
    assert!(!store.dir.path().exists());
}

#[test]
fn links_are_not_followed() {
    let (dir, store) = scratch();
    let saved = record(&store, "a");
    store.save(&saved).unwrap();
    let path = path(&store, "a/n/eth0");
    let victim = dir.path().join("victim");
    fs::rename(&path, &victim).unwrap();
    symlink(&victim, &path).unwrap();
    assert_eq!(store.load("a/n/eth0"), None);
    assert!(store.all().is_empty());
    store.save(&saved).unwrap();
    assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    let moved = dir.path().join("moved");
    fs::rename(store.dir.path(), &moved).unwrap();
    symlink(&moved, store.dir.path()).unwrap();
    assert!(store.all().is_empty());
    let error = store.save(&saved).unwrap_err().to_string();
    assert!(error.starts_with("save lease ") && error.ends_with(": not a directory"), "{error}");
    store.forget("a/n/eth0").unwrap();
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 1);
}

#[test]
fn files_of_others_and_debris_do_no_harm() {
    let (_dir, store) = scratch();
    store.save(&record(&store, "a")).unwrap();
    for (name, content) in [("empty", ""), ("junk", "{\"version\":1}"), (".new-X", "half")] {
        fs::write(store.dir.path().join(name), content).unwrap();
    }
    let newer = Record { version: 2, ..record(&store, "b") };
    fs::write(path(&store, "b/n/eth0"), serde_json::to_vec(&newer).unwrap()).unwrap();
    assert_eq!(store.all().len(), 1);
}

#[test]
fn a_namespace_is_known_by_what_it_is() {
    let path = Path::new("/proc/thread-self/ns/net");
    let holder = Holder { netns_id: netns_id(path).unwrap(), ..Holder::default() };
    assert!(holder.is_at(path) && holder.is_in(&NetNs::open(path).unwrap()));
    assert!(!Holder::default().is_in(&NetNs::open(path).unwrap()));
}
