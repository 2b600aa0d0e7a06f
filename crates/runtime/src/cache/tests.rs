// SPDX-License-Identifier: Apache-2.0
use std::os::unix::fs::PermissionsExt;

use super::*;

fn key() -> Attachment {
    Attachment::new("n", "c", "eth0").unwrap()
}

fn sample(attachment: Attachment) -> Remembered {
    let conf = RuntimeConf {
        attachment,
        netns: "/run/netns/x".into(),
        args: vec![vec!["A".into(), "1".into()]],
        capabilities: Json::parse(br#"{"mac":"aa"}"#).unwrap(),
    };
    let result = Json::parse(br#"{"cniVersion":"1.0.0"}"#).unwrap();
    Remembered { conf, network: b"{}\n".into(), result }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_has_libcnis_name_form_and_modes() {
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("cni/results");
    let cache = Cache::new(&results);
    cache.write(&sample(key())).unwrap();
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
    assert_eq!(cache.read(&key()).unwrap(), None);
    cache.write(&sample(key())).unwrap();
    assert_eq!(cache.read(&key()).unwrap().unwrap(), sample(key()));
    cache.forget(&key());
    cache.forget(&key());
    assert_eq!(cache.read(&key()).unwrap(), None);
}

#[test]
fn a_bare_result_is_understood_and_nonsense_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let file = dir.path().join("n-c-eth0");
    fs::write(&file, r#"{"cniVersion":"0.4.0","ips":[]}"#).unwrap();
    assert_eq!(
        cache.read(&key()).unwrap().unwrap().result.member("cniVersion").unwrap().as_str(),
        Some("0.4.0")
    );
    for nonsense in ["", "{", r#"{"kind":"other"}"#] {
        fs::write(&file, nonsense).unwrap();
        assert!(cache.read(&key()).is_err(), "{nonsense}");
    }
}

#[test]
fn attachments_are_those_of_the_network_by_file_name() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("results"));
    let network = NetworkName::new("n").unwrap();
    assert_eq!(cache.of_network(&network).unwrap(), []);
    for (network, container) in [("n", "d"), ("m", "c"), ("n", "c")] {
        cache.write(&sample(Attachment::new(network, container, "eth0").unwrap())).unwrap();
    }
    let (good, nameless) = (dir.path().join("results/n-c-eth0"), dir.path().join("results/n-e-eth0"));
    let text = fs::read_to_string(good).unwrap().replace(r#""containerId":"c""#, r#""containerId":"../c""#);
    fs::write(nameless, text).unwrap();
    fs::write(dir.path().join("results/n-broken-eth0"), "{").unwrap();
    let containers = |found: Vec<Remembered>| {
        found.iter().map(|one| one.conf.attachment.container.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(containers(cache.of_network(&network).unwrap()), ["c", "d"]);
    assert_eq!(containers(cache.all().unwrap()), ["c", "c", "d"]);
    cache.expect_whole(&NetworkName::new("m").unwrap()).unwrap();
    let broken = cache.expect_whole(&network).unwrap_err().to_string();
    assert!(broken.contains("results/n-broken-eth0: "), "{broken}");
}

/// Written by cnitool (libcni) for bridge, tuning and portmap, with `CNI_ARGS` and `CAP_ARGS`.
const OF_CNITOOL: &str = include_str!("../../tests/golden/cache-of-cnitool.json");

#[test]
fn a_file_of_libcni_is_read_whole_and_written_the_same() {
    let json = Json::parse(OF_CNITOOL.as_bytes()).unwrap();
    let shape = shape(&json).unwrap();
    let attachment = Attachment::new(&shape.network, &shape.container, &shape.ifname).unwrap();
    let found = shape.of(attachment);
    assert!(found.network.starts_with(br#"{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"bridge""#));
    assert_eq!(found.conf.args, [["IgnoreUnknown", "1"], ["A", "b"]]);
    assert_eq!(serde_json::to_string(&Shape::from(&found)).unwrap(), json.to_string());
}
