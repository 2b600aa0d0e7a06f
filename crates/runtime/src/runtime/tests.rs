// SPDX-License-Identifier: Apache-2.0
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

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

    /// A call that says nothing but whose it is.
    fn conf(&self) -> RuntimeConf {
        RuntimeConf {
            attachment: Attachment::new("n", "c", "eth0").unwrap(),
            netns: self.path("netns").to_str().unwrap().to_owned(),
            args: Vec::new(),
            capabilities: Json::Null,
        }
    }

    fn runtime(&mut self) -> Runtime<'_> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Runtime {
            env: Env::default().with("PATH", path).with("CNI_PATH", self.path("bin")),
            networks: Networks::new(self.path("net.d")),
            cache: Cache::new(self.path("results")),
            notes: &mut self.notes,
        }
    }

    fn add(&mut self) -> Result<Json, Error> {
        let args = [["A", "1"], ["B", "2"]].map(|pair| pair.map(str::to_owned).into()).into();
        let capabilities = Json::parse(br#"{"mac":"aa","ips":[]}"#).unwrap();
        let conf = RuntimeConf { args, capabilities, ..self.conf() };
        self.runtime().add(&conf)
    }

    fn del(&mut self) -> Result<(), Error> {
        let conf = self.conf();
        self.runtime().del(&conf)
    }

    fn check(&mut self) -> Result<(), Error> {
        let conf = self.conf();
        self.runtime().check(&conf)
    }

    fn status(&mut self) -> Result<bool, Error> {
        let mut runtime = self.runtime();
        let network = runtime.networks.find("n")?;
        runtime.status(&network)
    }

    fn gc(&mut self, keep: Keep) -> Result<Vec<Attachment>, Error> {
        let mut runtime = self.runtime();
        let network = runtime.networks.find("n")?;
        runtime.gc(&network, keep, false)
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

/// The name of the interface in a configuration's prevResult: which plugin's result it is.
fn prev(conf: &Json) -> Option<String> {
    let Json::Array(interfaces) = conf.member("prevResult")?.member("interfaces")? else { return None };
    Some(interfaces[0].member("name")?.as_str()?.to_owned())
}

#[test]
fn add_runs_the_chain_and_hands_results_on() {
    let mut bench = Bench::new("1.0.0");
    let result = bench.add().unwrap();
    assert_eq!(result.to_string(), r#"{"cniVersion":"1.0.0","interfaces":[{"name":"three"}]}"#);
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, conf)| (name.as_str(), prev(conf))).collect();
    let of = |name: &str| Some(name.to_owned());
    assert_eq!(names, [("one-ADD", None), ("two-ADD", of("one")), ("three-ADD", of("two"))]);
    assert_eq!(calls[0].1.to_string(), r#"{"type":"one","name":"n","cniVersion":"1.0.0"}"#);
    assert_eq!(calls[1].1.member("runtimeConfig").unwrap().to_string(), r#"{"mac":"aa"}"#);
    assert_eq!(calls[2].1.member("runtimeConfig"), None);
    let env = format!("c|{}|eth0|A=1;B=2|{}\n", bench.conf().netns, bench.path("bin").display());
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
    assert_eq!(calls[1].1.member("runtimeConfig").unwrap().to_string(), r#"{"mac":"aa"}"#);
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
    assert!(bench.del().unwrap_err().to_string().starts_with("no net configurations found in "));
}

#[test]
fn del_that_fails_can_be_tried_again() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    bench.touch("fail-two-DEL");
    let error = bench.del().unwrap_err().to_string();
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
    let error = bench.check().unwrap_err().to_string();
    assert_eq!(error, r#"configuration version "0.3.1" does not support the CHECK command"#);
    bench.del().unwrap();
    assert!(bench.take_calls().iter().all(|(_, conf)| conf.member("prevResult").is_none()));
}

#[test]
fn a_failed_add_is_undone() {
    let mut bench = Bench::new("1.0.0");
    bench.touch("fail-two-ADD");
    bench.touch("fail-two-DEL");
    let error = bench.add().unwrap_err().to_string();
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
    let error = bench.add().unwrap_err().to_string();
    assert!(error.starts_with(r#"failed to set network "n" cached result: "#), "{error}");
    assert_eq!(bench.calls().len(), 6);
}

#[test]
fn a_second_add_that_fails_leaves_the_first_alone() {
    let mut bench = Bench::new("1.0.0");
    bench.add().unwrap();
    bench.calls();
    bench.touch("fail-two-ADD");
    let error = bench.add().unwrap_err().to_string();
    assert!(error.ends_with("was left as it is (del removes it)"), "{error}");
    assert_eq!(bench.calls(), ["one-ADD", "two-ADD"]);
    assert_eq!(bench.cached(), 1);
}

#[test]
fn a_result_that_is_none_is_undone() {
    let mut bench = Bench::new("1.0.0");
    fs::write(bench.path("result-one"), "hello").unwrap();
    let error = bench.add().unwrap_err().to_string();
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
    assert_eq!(bench.check().unwrap_err().to_string(), "no luck; with two");
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
    bench.status().unwrap();
    let calls = bench.take_calls();
    assert_eq!(calls[0].1.to_string(), r#"{"type":"one","name":"n","cniVersion":"1.1.0"}"#);
    assert_eq!(calls.len(), 3);
    assert!(fs::read_to_string(bench.path("env-one-STATUS")).unwrap().starts_with("||||"));
    bench.touch("fail-two-STATUS");
    assert_eq!(bench.status().unwrap_err().to_string(), "no luck; with two");
    assert_eq!(bench.calls(), ["one-STATUS", "two-STATUS"]);
    let mut old = Bench::new("1.0.0");
    old.status().unwrap();
    assert!(old.calls().is_empty());
}

#[test]
fn gc_detaches_everything_and_then_asks_the_plugins() {
    let mut bench = Bench::new("1.1.0");
    bench.add().unwrap();
    bench.calls();
    bench.gc(Keep::Nothing).unwrap();
    let calls = bench.take_calls();
    let names: Vec<_> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["three-DEL", "two-DEL", "one-DEL", "one-GC", "two-GC", "three-GC"]);
    assert_eq!(calls[1].1.member("runtimeConfig").unwrap().to_string(), r#"{"mac":"aa"}"#);
    assert_eq!(calls[3].1.to_string(), r#"{"type":"one","name":"n","cniVersion":"1.1.0"}"#);
    assert_eq!(bench.cached(), 0);
}

#[test]
fn gc_can_keep_what_lives() {
    let mut bench = Bench::new("1.1.0");
    std::os::unix::fs::symlink("/proc/self/ns/net", bench.path("netns")).unwrap();
    bench.add().unwrap();
    let lost = Attachment::new("n", "lost", "eth0").unwrap();
    let netns = "/nonexistent/netns".into();
    let conf = RuntimeConf { attachment: lost.clone(), netns, ..bench.conf() };
    bench.runtime().add(&conf).unwrap();
    bench.calls();
    let network = bench.runtime().networks.find("n").unwrap();
    assert_eq!(bench.runtime().gc(&network, Keep::Live, true).unwrap(), std::slice::from_ref(&lost));
    assert!(bench.calls().is_empty());
    assert_eq!(bench.gc(Keep::Live).unwrap(), [lost]);
    let calls = bench.take_calls();
    assert_eq!(calls.len(), 6);
    assert!(fs::read_to_string(bench.path("env-one-DEL")).unwrap().starts_with("lost|/nonexistent/netns|"));
    let list = r#"[{"containerID":"c","ifname":"eth0"}]"#;
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        assert_eq!(calls[5].1.member(key).unwrap().to_string(), list);
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
    let error = bench.gc(Keep::Nothing).unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert!(lines[0].starts_with("failed to delete stale attachment c eth0: "), "{error}");
    assert_eq!(lines[1], "failed to GC plugin one: no luck; with one");
    assert_eq!(bench.calls(), ["three-DEL", "two-DEL", "one-DEL", "one-GC", "two-GC", "three-GC"]);
    bench.configure(r#"{"name":"n","cniVersion":"1.1.0","disableGC":true,"plugins":[{"type":"one"}]}"#);
    bench.gc(Keep::Nothing).unwrap();
    assert!(bench.calls().is_empty());
}

#[test]
fn a_plugin_that_is_not_there_is_named() {
    let mut bench = Bench::new("1.0.0");
    bench.configure(r#"{"name":"n","plugins":[{"type":"nope"}]}"#);
    let error = bench.add().unwrap_err().to_string();
    let path = bench.path("bin");
    assert!(
        error.starts_with(&format!(
            r#"plugin type="nope" failed (add): failed to find plugin "nope" in path [{}]"#,
            path.display()
        )),
        "{error}"
    );
}
