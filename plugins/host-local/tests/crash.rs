// SPDX-License-Identifier: Apache-2.0
//! Calls that end badly: killed at any moment, on a full disk, on a read-only one, and a boot after them. Whatever
//! happens, no reservation is incomplete, the next call works, and DEL leaves nothing.

#![expect(clippy::unwrap_used, reason = "what a test cannot do is a failed test")]

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cnibox_testkit::{Sandbox, sandbox, skip};
use serde_json::{Value, json};

fn conf(dir: &Path) -> String {
    json!({"cniVersion": "1.1.0", "name": "net",
        "ipam": {"dataDir": dir, "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd00::/64"}]]}})
    .to_string()
}

fn start(net: &Sandbox, verb: &str, container: &str, conf: &str) -> Child {
    let mut command = Command::new(net.cni_path().join("host-local"));
    begin(command.arg0("host-local"), verb, container, conf).unwrap()
}

fn begin(command: &mut Command, verb: &str, container: &str, conf: &str) -> std::io::Result<Child> {
    let mut child = command
        .env_clear()
        .envs([("CNI_COMMAND", verb), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "eth0")])
        .envs([("CNI_NETNS", "/nowhere"), ("CNI_PATH", "/nowhere")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let _ = child.stdin.take().unwrap().write_all(conf.as_bytes());
    Ok(child)
}

fn call(net: &Sandbox, verb: &str, container: &str, conf: &str) -> (bool, Value) {
    let output = start(net, verb, container, conf).wait_with_output().unwrap();
    (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// How many reservations there are; each must be complete, and nothing else be there.
fn reservations(dir: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir.join("net")).into_iter().flatten().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name == "lock" || name == "filler" || name.starts_with("last_reserved_ip.") {
            continue;
        }
        assert!(name.parse::<std::net::IpAddr>().is_ok(), "{name} was left");
        let content = fs::read_to_string(entry.path()).unwrap();
        assert!(content.starts_with('c') && content.ends_with("\r\neth0"), "{name}: {content:?}");
        count += 1;
    }
    count
}

/// How long an ADD takes at least: one slow call must not put all kills behind the end.
fn shortest(net: &Sandbox, conf: &str) -> Duration {
    let times = (0..10).map(|_| {
        let started = Instant::now();
        assert!(call(net, "ADD", "c-timed", conf).0);
        let time = started.elapsed();
        assert!(call(net, "DEL", "c-timed", conf).0);
        time
    });
    times.min().unwrap()
}

#[test]
fn a_call_killed_at_any_moment_leaves_nothing_that_del_does_not_clear() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        let conf = conf(&dir);
        assert!(call(net, "ADD", "c-warm", &conf).0);
        let usual = shortest(net, &conf);
        let (mut killed, moments) = (0, 300);
        for moment in 0..moments {
            let container = format!("c{moment}");
            let verb = if moment % 3 == 2 { "DEL" } else { "ADD" };
            if verb == "DEL" {
                assert!(call(net, "ADD", &container, &conf).0);
            }
            let mut child = start(net, verb, &container, &conf);
            sleep(usual * (moment * 7 % moments) / moments);
            child.kill().unwrap();
            killed += u32::from(child.wait().unwrap().code().is_none());
            reservations(&dir);
            assert!(call(net, "CHECK", "c-warm", &conf).0);
            assert!(call(net, "DEL", &container, &conf).0);
            assert!(!call(net, "CHECK", &container, &conf).0, "{container}");
            assert_eq!(reservations(&dir), 2, "{container}");
        }
        assert!(killed > moments / 10, "only {killed} calls were still running when they were killed");
        let (done, answer) = call(net, "ADD", "c-last", &conf);
        assert!(done, "{answer}");
    });
}

#[test]
fn a_call_killed_where_it_writes_leaves_whole_reservations() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        let conf = conf(&dir);
        assert!(call(net, "ADD", "c-warm", &conf).0);
        let mut killed = 0;
        for nth in 1.. {
            let container = format!("c{nth}");
            let mut command = Command::new("strace");
            command.args(["-qq", "-o", "/dev/null", "-e", "trace=write"]);
            command.args(["-e", &format!("inject=write:signal=KILL:when={nth}")]);
            command.arg(net.cni_path().join("host-local"));
            let Ok(child) = begin(&mut command, "ADD", &container, &conf) else {
                return skip("strace is not installed");
            };
            let output = child.wait_with_output().unwrap();
            let made = reservations(&dir) - 2;
            assert!(call(net, "DEL", &container, &conf).0);
            assert_eq!(reservations(&dir), 2, "write {nth}");
            if output.status.success() {
                assert_eq!(made, 2);
                break;
            }
            killed += 1;
        }
        assert!(killed >= 3, "two reservations and the answer: {killed} writes");
    });
}

/// No room for the index, and then the files cannot be listed.
#[test]
fn an_index_that_was_given_up_is_not_believed_again() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        let conf = conf(&dir);
        assert!(call(net, "ADD", "c-warm", &conf).0);
        let mut indexes = fs::read_dir("/run/cnibox/host-local").unwrap();
        let index = indexes.next().unwrap().unwrap().path();
        let before = fs::read(&index).unwrap();
        let mut command = Command::new("strace");
        command.args(["-qq", "-o", "/dev/null", "-e", "trace=pwrite64,getdents64"]);
        command.args(["-e", "inject=pwrite64:error=ENOSPC:when=2", "-e", "inject=getdents64:error=EIO"]);
        command.arg(net.cni_path().join("host-local"));
        let Ok(child) = begin(&mut command, "ADD", "c1", &conf) else {
            return skip("strace is not installed");
        };
        let output = child.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(answer["msg"].as_str().unwrap().ends_with("/net/.: input/output error"), "{answer}");
        assert!(fs::read(&index).unwrap() == before, "the index says that it is up to date");
        assert_eq!(reservations(&dir), 2);
        assert!(call(net, "ADD", "c2", &conf).0);
    });
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        fs::create_dir(&dir).unwrap();
        net.run("mount", &["-t", "tmpfs", "-o", "size=64k,nr_inodes=64", "tmpfs", dir.to_str().unwrap()]);
        let conf = conf(&dir);
        assert!(call(net, "ADD", "c1", &conf).0);
        let filler = dir.join("filler");
        let _ = fs::write(&filler, vec![0; 1 << 20]);
        let (done, answer) = call(net, "ADD", "c2", &conf);
        assert!(!done);
        assert_eq!(answer["code"], 5);
        let msg = answer["msg"].as_str().unwrap();
        assert!(msg.ends_with("no space left on device"), "{msg}");
        assert_eq!(reservations(&dir), 2);
        assert!(call(net, "CHECK", "c1", &conf).0 && call(net, "DEL", "c1", &conf).0);
        fs::remove_file(&filler).unwrap();
        assert!(call(net, "ADD", "c2", &conf).0);
    });
}

#[test]
fn a_read_only_disk_is_an_error_and_status_says_so() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        fs::create_dir(&dir).unwrap();
        net.run("mount", &["-t", "tmpfs", "tmpfs", dir.to_str().unwrap()]);
        let conf = conf(&dir);
        assert!(call(net, "ADD", "c1", &conf).0);
        net.run("mount", &["-o", "remount,ro", dir.to_str().unwrap()]);
        for (verb, container) in [("ADD", "c2"), ("DEL", "c1")] {
            let (done, answer) = call(net, verb, container, &conf);
            assert!(!done && answer["code"] == 5, "{verb}: {answer}");
            assert!(answer["msg"].as_str().unwrap().ends_with("read-only file system"), "{verb}: {answer}");
        }
        let (_, answer) = call(net, "STATUS", "", &conf);
        assert_eq!(answer["code"], 50, "{answer}");
        assert!(call(net, "CHECK", "c1", &conf).0);
        assert_eq!(reservations(&dir), 2);
    });
}

/// A time namespace stands for the boot: in it the host has been up for a second.
#[test]
fn a_boot_ends_reservations_where_that_is_wanted() {
    sandbox(|net| {
        let dir = net.dir().join("state");
        let kept = conf(&dir);
        let reclaimed = kept.replacen("\"dataDir\"", "\"reclaimOnBoot\":true,\"dataDir\"", 1);
        let add = |container: &str, conf: &str| {
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            let offset = format!("-{}", uptime.split('.').next().unwrap().parse::<u64>().unwrap() - 1);
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", &offset, "bash", "-c", "exec -a host-local \"$0\""]);
            let child =
                begin(command.arg(net.cni_path().join("host-local")), "ADD", container, conf).unwrap();
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        };
        let note = dir.join("net/boot_id");
        assert!(call(net, "ADD", "c1", &reclaimed).0);
        fs::write(&note, "boot=another\n").unwrap();
        sleep(Duration::from_secs(3));
        add("c2", &kept);
        fs::rename(&note, dir.join("note")).unwrap();
        assert_eq!(reservations(&dir), 4);
        fs::rename(dir.join("note"), &note).unwrap();
        add("c3", &reclaimed);
        assert_ne!(fs::read_to_string(&note).unwrap(), "boot=another\n");
        fs::remove_file(&note).unwrap();
        let (held, _) = call(net, "CHECK", "c1", &kept);
        assert!(!held && call(net, "CHECK", "c2", &kept).0 && call(net, "CHECK", "c3", &kept).0);
        assert_eq!(reservations(&dir), 4);
    });
}
