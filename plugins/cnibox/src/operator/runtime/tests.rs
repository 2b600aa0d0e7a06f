// SPDX-License-Identifier: Apache-2.0
use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use tempfile::TempDir;

/// See the file. Linked to, since a file that was just written may still be open for writing in a process that another
/// test is starting.
const RECORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorder");

struct Bench {
    dir: TempDir,
    notes: Vec<u8>,
}

impl Bench {
    fn new(version: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bench = Self { dir, notes: Vec::new() };
        for folder in ["bin", "calls", "net.d"] {
            fs::create_dir(bench.path(folder)).unwrap();
        }
        for name in ["one", "two", "three"] {
            symlink(RECORDER, bench.path(&format!("bin/{name}"))).unwrap();
            let result = format!(r#"{{"interfaces":[{{"name":"{name}"}}],"unknown":1}}"#);
            fs::write(bench.path(&format!("result-{name}")), result).unwrap();
        }
        bench.configure(&format!(
            r#"{{"name":"n","cniVersion":"{version}","plugins":[{{"type":"one"}},{{"type":"two","capabilities":{{"mac":true}}}},{{"type":"three"}}]}}"#
        ));
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self, conf: &str) {
        fs::write(self.path("net.d/n.conflist"), conf).unwrap();
    }

    fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    fn attachment(&self, vars: &[(&str, &str)]) -> Attachment {
        let env = vars.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Attachment::read(self.path("netns").to_str().unwrap(), &env).unwrap()
    }

    fn runtime(&mut self) -> Runtime<'_> {
        let env = [
            ("PATH", std::env::var_os("PATH").unwrap_or_default()),
            ("NETCONFPATH", self.path("net.d").into()),
            ("CNI_PATH", self.path("bin").into()),
        ];
        let env = env.into_iter().map(|(key, value)| (key.into(), value)).collect();
        let cache = Cache::new(self.path("results"));
        Runtime::new(env, cache, &mut self.notes)
    }

    fn add(&mut self) -> Result<Json> {
        let attachment =
            self.attachment(&[("CNI_ARGS", "A=1;B=2"), ("CAP_ARGS", r#"{"mac":"aa","ips":[]}"#)]);
        self.runtime().add("n", &attachment)
    }

    fn del(&mut self) -> Result<()> {
        let attachment = self.attachment(&[]);
        self.runtime().del("n", attachment)
    }

    fn check(&mut self) -> Result<()> {
        let attachment = self.attachment(&[]);
        self.runtime().check("n", attachment)
    }

    /// `TYPE-VERB` of every call since the last time, in order.
    fn calls(&self) -> Vec<String> {
        self.take_calls().into_iter().map(|(name, _)| name).collect()
    }

    fn take_calls(&self) -> Vec<(String, Json)> {
        let mut files: Vec<_> =
            fs::read_dir(self.path("calls")).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let take = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_str().unwrap()[3..].to_owned();
            let json = Json::parse(&fs::read(file).unwrap()).unwrap();
            fs::remove_file(file).unwrap();
            (name, json)
        };
        files.iter().map(take).collect()
    }

    fn cached(&self) -> usize {
        fs::read_dir(self.path("results")).map_or(0, Iterator::count)
    }
}

fn text(json: &Json) -> String {
    serde_json::to_string(json).unwrap()
}

/// The name of the interface in a configuration's prevResult: which plugin's result it is.
fn prev(conf: &Json) -> Option<String> {
    let Json::Array(interfaces) = conf.member("prevResult")?.member("interfaces")? else { return None };
    Some(interfaces[0].member("name")?.as_str()?.to_owned())
}

#[test]
fn add_runs_the_chain_and_hands_results_on() {
    let mut bench = Bench::new("1.0.0");
    let result = bench.add().unwrap();
    assert_eq!(text(&result), r#"{"cniVersion":"1.0.0","interfaces":[{"name":"three"}]}"#);
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, conf)| (name.as_str(), prev(conf))).collect();
    let of = |name: &str| Some(name.to_owned());
    assert_eq!(names, [("one-ADD", None), ("two-ADD", of("one")), ("three-ADD", of("two"))]);
    assert_eq!(text(&calls[0].1), r#"{"type":"one","name":"n","cniVersion":"1.0.0"}"#);
    assert_eq!(text(calls[1].1.member("runtimeConfig").unwrap()), r#"{"mac":"aa"}"#);
    assert_eq!(calls[2].1.member("runtimeConfig"), None);
    let attachment = bench.attachment(&[]);
    let env = format!(
        "{}|{}|eth0|A=1;B=2|{}\n",
        attachment.container,
        attachment.netns,
        bench.path("bin").display()
    );
    assert_eq!(fs::read_to_string(bench.path("env-two-ADD")).unwrap(), env);
    assert_eq!(bench.cached(), 1);
    assert_eq!(String::from_utf8(bench.notes).unwrap(), "note of one\nnote of two\nnote of three\n");
}

#[test]
fn del_runs_backwards_with_what_add_used() {
    let mut bench = Bench::new("0.4.0");
    bench.add().unwrap();
    bench.calls();
    bench.configure(r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"three"}]}"#);
    bench.del().unwrap();
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, conf)| (name.as_str(), prev(conf).unwrap())).collect();
    assert_eq!(names, ["three-DEL", "two-DEL", "one-DEL"].map(|name| (name, "three".to_owned())));
    assert_eq!(text(calls[1].1.member("runtimeConfig").unwrap()), r#"{"mac":"aa"}"#);
    assert!(fs::read_to_string(bench.path("env-two-DEL")).unwrap().contains("|A=1;B=2|"));
    assert_eq!(bench.cached(), 0);
    bench.del().unwrap();
    let again = bench.take_calls();
    assert_eq!(
        again.iter().map(|(name, conf)| (name.as_str(), prev(conf))).collect::<Vec<_>>(),
        [("three-DEL", None)]
    );
}

#[test]
fn del_works_when_the_configuration_file_is_gone() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    fs::remove_file(bench.path("net.d/n.conflist")).unwrap();
    bench.check().unwrap();
    bench.del().unwrap();
    assert_eq!(bench.calls().len(), 6);
    assert!(format!("{:#}", bench.del().unwrap_err()).starts_with("no net configurations found in "));
}

#[test]
fn del_that_fails_can_be_tried_again() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    bench.touch("fail-two-DEL");
    let error = format!("{:#}", bench.del().unwrap_err());
    assert_eq!(error, r#"plugin type="two" failed (delete): no luck; with two"#);
    assert_eq!(bench.calls(), ["three-DEL", "two-DEL", "one-DEL"]);
    assert_eq!(bench.cached(), 1);
    fs::remove_file(bench.path("fail-two-DEL")).unwrap();
    bench.del().unwrap();
    assert_eq!((bench.calls().len(), bench.cached()), (3, 0));
}

#[test]
fn versions_before_0_4_0_give_del_no_result_and_have_no_check() {
    let mut bench = Bench::new("0.3.1");
    bench.add().unwrap();
    bench.calls();
    let error = format!("{:#}", bench.check().unwrap_err());
    assert_eq!(error, r#"configuration version "0.3.1" does not support the CHECK command"#);
    bench.del().unwrap();
    assert!(bench.take_calls().iter().all(|(_, conf)| conf.member("prevResult").is_none()));
}

#[test]
fn a_failed_add_is_undone() {
    let mut bench = Bench::new("1.0.0");
    bench.touch("fail-two-ADD");
    bench.touch("fail-two-DEL");
    let error = format!("{:#}", bench.add().unwrap_err());
    assert_eq!(
        error,
        r#"plugin type="two" failed (add): no luck; with two; undo: plugin type="two" failed (delete): no luck; with two"#
    );
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, conf)| (name.as_str(), prev(conf))).collect();
    let one = Some("one".to_owned());
    assert_eq!(
        names,
        [("one-ADD", None), ("two-ADD", one.clone()), ("two-DEL", one.clone()), ("one-DEL", one)]
    );
    assert_eq!(bench.cached(), 0);
}

#[test]
fn an_add_that_cannot_be_remembered_is_undone() {
    let mut bench = Bench::new("1.0.0");
    bench.touch("results");
    let error = format!("{:#}", bench.add().unwrap_err());
    assert!(error.starts_with(r#"failed to set network "n" cached result: "#), "{error}");
    assert_eq!(bench.calls().len(), 6);
}

#[test]
fn a_second_add_that_fails_leaves_the_first_alone() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    bench.touch("fail-two-ADD");
    let error = format!("{:#}", bench.add().unwrap_err());
    assert!(error.ends_with(KNOWN), "{error}");
    assert_eq!(bench.calls(), ["one-ADD", "two-ADD"]);
    assert_eq!(bench.cached(), 1);
}

#[test]
fn a_result_that_is_none_is_undone() {
    let mut bench = Bench::new("1.0.0");
    fs::write(bench.path("result-one"), "hello").unwrap();
    let error = format!("{:#}", bench.add().unwrap_err());
    assert!(
        error.starts_with(r#"plugin type="one" failed (add): failed to unmarshal raw result: "#),
        "{error}"
    );
    assert_eq!(bench.calls(), ["one-ADD", "one-DEL"]);
}

#[test]
fn check_gives_every_plugin_the_final_result() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    bench.check().unwrap();
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, conf)| (name.as_str(), prev(conf).unwrap())).collect();
    assert_eq!(names, ["one-CHECK", "two-CHECK", "three-CHECK"].map(|name| (name, "three".to_owned())));
    bench.touch("fail-two-CHECK");
    assert_eq!(format!("{:#}", bench.check().unwrap_err()), "no luck; with two");
    assert_eq!(bench.calls(), ["one-CHECK", "two-CHECK"]);
}

#[test]
fn check_can_be_disabled() {
    let mut bench = Bench::new("1.0.0");
    bench.configure(r#"{"name":"n","cniVersion":"1.0.0","disableCheck":true,"plugins":[{"type":"one"}]}"#);
    bench.add().unwrap();
    bench.calls();
    bench.check().unwrap();
    assert!(bench.calls().is_empty());
}

#[test]
fn status_stops_at_the_first_plugin_that_cannot_work() {
    let mut bench = Bench::new("1.1.0");
    bench.runtime().status("n").unwrap();
    let calls = bench.take_calls();
    assert_eq!(text(&calls[0].1), r#"{"type":"one","name":"n","cniVersion":"1.1.0"}"#);
    assert_eq!(calls.len(), 3);
    assert!(fs::read_to_string(bench.path("env-one-STATUS")).unwrap().starts_with("||||"));
    bench.touch("fail-two-STATUS");
    assert_eq!(format!("{:#}", bench.runtime().status("n").unwrap_err()), "no luck; with two");
    assert_eq!(bench.calls(), ["one-STATUS", "two-STATUS"]);
    let mut old = Bench::new("1.0.0");
    old.runtime().status("n").unwrap();
    assert!(old.calls().is_empty());
}

#[test]
fn gc_detaches_everything_and_then_asks_the_plugins() {
    let mut bench = Bench::new("1.1.0");
    bench.add().unwrap();
    bench.calls();
    bench.runtime().gc("n", Keep::Nothing, false).unwrap();
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["three-DEL", "two-DEL", "one-DEL", "one-GC", "two-GC", "three-GC"]);
    assert_eq!(text(calls[1].1.member("runtimeConfig").unwrap()), r#"{"mac":"aa"}"#);
    assert_eq!(text(&calls[3].1), r#"{"type":"one","name":"n","cniVersion":"1.1.0"}"#);
    assert_eq!(bench.cached(), 0);
}

#[test]
fn gc_can_keep_what_lives() {
    let mut bench = Bench::new("1.1.0");
    std::os::unix::fs::symlink("/proc/self/ns/net", bench.path("netns")).unwrap();
    bench.add().unwrap();
    let live = bench.attachment(&[]);
    let lost = Attachment { netns: "/nonexistent/netns".into(), container: "lost".into(), ..live.clone() };
    bench.runtime().add("n", &lost).unwrap();
    bench.calls();
    let would = bench.runtime().gc("n", Keep::Live, true).unwrap();
    assert_eq!((would.as_slice(), bench.calls().len()), (["lost eth0".to_owned()].as_slice(), 0));
    assert_eq!(bench.runtime().gc("n", Keep::Live, false).unwrap(), would);
    let calls = bench.take_calls();
    assert_eq!(calls.len(), 6);
    assert!(fs::read_to_string(bench.path("env-one-DEL")).unwrap().starts_with("lost|/nonexistent/netns|"));
    let list = format!(r#"[{{"containerID":"{}","ifname":"eth0"}}]"#, live.container);
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        assert_eq!(text(calls[5].1.member(key).unwrap()), list);
    }
    assert_eq!(bench.cached(), 1);
}

#[test]
fn gc_goes_on_past_failures_and_can_be_disabled() {
    let mut bench = Bench::new("1.1.0");
    bench.add().unwrap();
    bench.calls();
    bench.touch("fail-three-DEL");
    bench.touch("fail-one-GC");
    let error = format!("{:#}", bench.runtime().gc("n", Keep::Nothing, false).unwrap_err());
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with("failed to delete stale attachment cnitool-"), "{error}");
    assert_eq!(lines[1], "failed to GC plugin one: no luck; with one");
    assert_eq!(bench.calls(), ["three-DEL", "two-DEL", "one-DEL", "one-GC", "two-GC", "three-GC"]);
    bench.configure(r#"{"name":"n","cniVersion":"1.1.0","disableGC":true,"plugins":[{"type":"one"}]}"#);
    bench.runtime().gc("n", Keep::Nothing, false).unwrap();
    assert!(bench.calls().is_empty());
}

#[test]
fn a_plugin_that_is_not_there_is_named() {
    let mut bench = Bench::new("1.0.0");
    bench.configure(r#"{"name":"n","plugins":[{"type":"nope"}]}"#);
    let error = format!("{:#}", bench.add().unwrap_err());
    let path = bench.path("bin");
    assert!(
        error.starts_with(&format!(
            r#"plugin type="nope" failed (add): failed to find plugin "nope" in path [{}]"#,
            path.display()
        )),
        "{error}"
    );
}
