// SPDX-License-Identifier: Apache-2.0
use std::fs;

use super::*;
use tempfile::TempDir;

fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn find(dir: &Path, name: &str) -> Result<Network, Error> {
    Networks::new(dir).find(name)
}

fn kinds(network: &Network) -> Vec<&str> {
    network.plugins.iter().map(|plugin| plugin.kind.as_str()).collect()
}

fn refused(text: &str) -> String {
    Error::List(parse(text.as_bytes()).unwrap_err()).to_string()
}

#[test]
fn lists_come_before_single_files_and_names_are_sorted() {
    let dir = dir(&[
        ("10-a.conf", r#"{"name":"n","type":"single"}"#),
        ("30-b.conflist", r#"{"name":"n","plugins":[{"type":"late"}]}"#),
        ("20-b.conflist", r#"{"name":"n","plugins":[{"type":"first"},{"type":"second"}]}"#),
        ("10-x.conflist", r#"{"name":"other","plugins":[{"type":"x"}]}"#),
        ("00-ignored.txt", "{"),
    ]);
    assert_eq!(kinds(&find(dir.path(), "n").unwrap()), ["first", "second"]);
}

#[test]
fn a_single_file_becomes_a_list() {
    let text =
        r#"{"type":"p","cniVersion":"0.4.0","name":"n","capabilities":{"mac":true,"ips":false},"x":1}"#;
    let dir = dir(&[("b.json", text), ("a.conf", r#"{"name":"m","type":"q"}"#)]);
    let network = find(dir.path(), "n").unwrap();
    assert_eq!((network.name.as_str(), network.version.as_str()), ("n", "0.4.0"));
    assert_eq!(network.plugins[0].capabilities, ["mac"]);
    assert_eq!(
        String::from_utf8(network.bytes).unwrap(),
        format!(r#"{{"cniVersion":"0.4.0","name":"n","plugins":[{text}]}}"#)
    );
}

#[test]
fn the_folder_with_the_networks_name_adds_plugins() {
    let files = |only| {
        [
            ("n.conflist", only),
            ("n/20-b.conf", r#"{"type":"b"}"#),
            ("n/10-a.conf", r#"{"type":"a"}"#),
            ("n/30-c.json", r#"{"type":"c"}"#),
        ]
    };
    let load = |list| find(dir(&files(list)).path(), "n");
    assert_eq!(kinds(&load(r#"{"name":"n"}"#).unwrap()), ["a", "b"]);
    assert_eq!(kinds(&load(r#"{"name":"n","plugins":[{"type":"x"}]}"#).unwrap()), ["x", "a", "b"]);
    let inlined = r#"{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"x"}]}"#;
    assert_eq!(kinds(&load(inlined).unwrap()), ["x"]);
    let error = load(r#"{"name":"n","loadOnlyInlinedPlugins":"True"}"#).unwrap_err().to_string();
    assert!(error.ends_with("`loadOnlyInlinedPlugins` is true, and no 'plugins' key"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let empty = dir(&[]);
    let error = |dir: &TempDir| find(dir.path(), "n").unwrap_err().to_string();
    let at = |dir: &TempDir| dir.path().display().to_string();
    assert_eq!(error(&empty), format!("no net configurations found in {}", at(&empty)));
    let other = dir(&[("a.conflist", r#"{"name":"m","plugins":[{"type":"x"}]}"#)]);
    assert_eq!(error(&other), format!(r#"no net configuration with name "n" in {}"#, at(&other)));
    let none = dir(&[("a.conflist", r#"{"name":"n"}"#)]);
    assert_eq!(error(&none), format!("{}/a.conflist: no plugin configs found", at(&none)));
    assert!(
        find(Path::new("/nonexistent"), "n").unwrap_err().to_string().starts_with("no net configurations")
    );
}

#[test]
fn a_broken_file_is_not_skipped() {
    let dir = dir(&[("a.conflist", "{"), ("b.conflist", r#"{"name":"n","plugins":[{"type":"x"}]}"#)]);
    let error = find(dir.path(), "n").unwrap_err().to_string();
    assert!(
        error.ends_with("a.conflist: error parsing configuration list: unexpected end of JSON input"),
        "{error}"
    );
}

#[test]
fn versions_are_negotiated() {
    let version = |text: &str| parse(text.as_bytes()).unwrap().version;
    assert_eq!(version(r#"{"name":"n"}"#), "");
    assert_eq!(version(r#"{"name":"n","cniVersion":"0.4.0"}"#), "0.4.0");
    assert_eq!(version(r#"{"name":"n","cniVersions":["0.3.1","1.0.0","9.0.0"]}"#), "1.0.0");
    assert_eq!(version(r#"{"name":"n","cniVersion":"1.1.0","cniVersions":["0.3.1"]}"#), "1.1.0");
    assert_eq!(version(r#"{"name":"n","cniVersion":"9.0.0","cniVersions":["8.0.0"]}"#), "9.0.0");
}

#[test]
fn wrong_types_are_refused_in_libcnis_words() {
    let prefix = "error parsing configuration list: ";
    for (text, error) in [
        (r#"{"plugins":[{"type":"x"}]}"#, "no name"),
        (r#"{"Name":"n"}"#, "no name"),
        (r#"{"name":1}"#, "invalid name type float64"),
        (r#"{"name":"n","cniVersion":[]}"#, "invalid cniVersion type []interface {}"),
        (r#"{"name":"n","cniVersions":[1]}"#, "invalid type for cniVersions index 0: float64"),
        (r#"{"name":"n","disableCheck":1}"#, "invalid type float64 for disableCheck"),
        (r#"{"name":"n","disableGC":"maybe"}"#, r#"invalid value "maybe" for disableGC"#),
        (r#"{"name":"n","plugins":{}}"#, "invalid 'plugins' type map[string]interface {}"),
        (r#"{"name":"n","plugins":[]}"#, "no plugins in list"),
        (
            r#"{"name":"n","plugins":[{}]}"#,
            "failed to parse plugin config 0: error parsing configuration: missing 'type'",
        ),
    ] {
        assert_eq!(refused(text), format!("{prefix}{error}"), "{text}");
    }
    assert!(refused(r#"{"name":"n","plugins":[{"type":1}]}"#).contains("cannot unmarshal number"));
}

#[test]
fn switches_are_read_as_booleans_and_as_text() {
    let network = parse(br#"{"name":"n","disableCheck":"TRUE","disableGC":true}"#).unwrap();
    assert!(network.disable_check && network.disable_gc);
}
