// SPDX-License-Identifier: Apache-2.0
use std::os::unix::fs::PermissionsExt;

use super::*;

const KEY: Key<'_> = Key { network: "n", container: "c", ifname: "eth0" };

fn sample() -> Entry {
    let entry = Entry {
        container: "c".into(),
        ifname: "eth0".into(),
        network: "n".into(),
        netns: "/run/netns/x".into(),
        args: vec![vec!["A".into(), "1".into()]],
        capabilities: Json::parse(br#"{"mac":"aa"}"#).unwrap(),
        result: Json::parse(br#"{"cniVersion":"1.0.0"}"#).unwrap(),
        ..Entry::default()
    };
    entry.with_config(b"{}\n")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_has_libcnis_name_form_and_modes() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("cni/results");
    let cache = Cache::new(&results);
    cache.write(&sample()).unwrap();
    let file = results.join("n-c-eth0");
    assert_eq!((mode(&results), mode(&file)), (0o700, 0o600));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        r#"{"kind":"cniCacheV1","containerId":"c","config":"e30K","ifName":"eth0","networkName":"n","netns":"/run/netns/x","cniArgs":[["A","1"]],"capabilityArgs":{"mac":"aa"},"result":{"cniVersion":"1.0.0"}}"#
    );
    assert_eq!(fs::read_dir(&results).unwrap().count(), 1);
}

#[test]
fn what_is_written_reads_back_and_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    assert_eq!(cache.read(KEY).unwrap(), None);
    cache.write(&sample()).unwrap();
    let entry = cache.read(KEY).unwrap().unwrap();
    assert_eq!(entry, sample());
    assert_eq!(entry.config().unwrap(), b"{}\n");
    cache.forget(KEY);
    cache.forget(KEY);
    assert_eq!(cache.read(KEY).unwrap(), None);
}

#[test]
fn a_bare_result_is_understood_and_nonsense_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let file = dir.path().join("n-c-eth0");
    fs::write(&file, r#"{"cniVersion":"0.4.0","ips":[]}"#).unwrap();
    assert_eq!(
        cache.read(KEY).unwrap().unwrap().result.member("cniVersion").unwrap().as_str(),
        Some("0.4.0")
    );
    for nonsense in ["", "{", r#"{"kind":"other"}"#] {
        fs::write(&file, nonsense).unwrap();
        assert!(cache.read(KEY).is_err(), "{nonsense}");
    }
}

#[test]
fn attachments_are_those_of_the_network_by_file_name() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("results"));
    assert_eq!(cache.attachments("n").unwrap(), []);
    for (network, container) in [("n", "d"), ("m", "c"), ("n", "c")] {
        cache.write(&Entry { network: network.into(), container: container.into(), ..sample() }).unwrap();
    }
    fs::write(dir.path().join("results/n-broken-eth0"), "{").unwrap();
    let found = cache.attachments("n").unwrap();
    assert_eq!(found.iter().map(|entry| entry.container.as_str()).collect::<Vec<_>>(), ["c", "d"]);
}

/// Written by cnitool (libcni) for bridge, tuning and portmap, with `CNI_ARGS` and `CAP_ARGS`.
const OF_CNITOOL: &str = include_str!("../../../tests/golden/cache-of-cnitool.json");

#[test]
fn a_file_of_libcni_is_read_whole_and_written_the_same() {
    let json = Json::parse(OF_CNITOOL.as_bytes()).unwrap();
    let entry = entry(&json).unwrap();
    assert!(
        entry
            .config()
            .unwrap()
            .starts_with(br#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge""#)
    );
    assert_eq!(entry.args, [["IgnoreUnknown", "1"], ["A", "b"]]);
    assert_eq!(serde_json::to_string(&entry).unwrap(), serde_json::to_string(&json).unwrap());
}
