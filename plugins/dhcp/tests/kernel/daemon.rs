// SPDX-License-Identifier: Apache-2.0
//! Start and end: command line, socket, pid file, systemd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use cnibox_testkit::{Sandbox, sandbox};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::world::{
    Process, SOCKET, attach, call, daemon, dnsmasq, eventually, lan, leased, pod, remembered,
};

fn fails(net: &Sandbox, flags: &[&str]) -> (i32, String) {
    let output = Command::new(net.cni_path().join("dhcp")).arg("daemon").args(flags).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn socket_and_pid_file_come_and_go_with_it() {
    sandbox(|net| {
        let pidfile = net.dir().join("pid");
        for signal in [Signal::SIGTERM, Signal::SIGINT] {
            let running = daemon(net, &["--pidfile", pidfile.to_str().unwrap()]);
            assert_eq!(fs::read_to_string(&pidfile).unwrap(), running.pid().to_string());
            let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode("/run/cni"), mode(SOCKET)), (0o700, 0o660));
            assert_eq!(running.end(signal), 0);
            assert!(!pidfile.exists() && !Path::new(SOCKET).exists());
        }
    });
}

#[test]
fn mistakes_end_it_with_a_reason() {
    sandbox(|net| {
        let (status, text) = fails(net, &["-pidfile", "relative"]);
        assert_eq!((status, text.as_str()), (1, "Error writing pidfile \"relative\": path not absolute\n"));
        let (status, text) = fails(net, &["-bogus"]);
        assert!(
            status == 2 && text.starts_with("flag provided but not defined: -bogus\nUsage of daemon:"),
            "{text}"
        );
        assert_eq!(fails(net, &["-h"]).0, 0);
        let _running = daemon(net, &[]);
        let (status, text) = fails(net, &[]);
        let want = "Error getting listener: listen unix /run/cni/dhcp.sock: bind: address already in use\n";
        assert_eq!((status, text.as_str()), (1, want));
        fs::write("/run/cni/file", "").unwrap();
        assert_eq!(fails(net, &["-socketpath", "/run/cni/file"]).0, 1);
        assert!(Path::new("/run/cni/file").exists(), "only a socket that nobody listens at is replaced");
    });
}

#[test]
fn systemd_may_pass_the_socket() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        fs::create_dir("/run/cni").unwrap();
        let listener = UnixListener::bind(SOCKET).unwrap();
        let program = net.cni_path().join("dhcp");
        let start = |count: &str| {
            let mut command = Command::new("sh");
            let script =
                format!("exec 3<&0 4<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS={count} exec \"$0\" daemon");
            command
                .args(["-c", &script])
                .arg(&program)
                .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())));
            command.stderr(Stdio::piped());
            net.netns().run(|| command.spawn()).unwrap().unwrap()
        };
        let refused = start("2").wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8(refused.stderr).unwrap(),
            "Error getting listener: Too many (2) FDs passed through socket activation\n"
        );
        let mut running = start("1");
        let pod = pod(net);
        attach(net, &pod);
        assert_eq!(remembered(), 1);
        let pid = nix::unistd::Pid::from_raw(running.id().cast_signed());
        nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
        assert!(running.wait().unwrap().success());
        assert!(Path::new(SOCKET).exists(), "systemd's socket is not ours to remove");
        let mut running = start("1");
        call(net, "DEL", &pod, &json!({})).success();
        leased(net, 0);
        running.kill().unwrap();
        running.wait().unwrap();
    });
}

#[test]
fn the_hosts_paths_may_have_a_prefix() {
    sandbox(|net| {
        lan(net);
        let Some(_server) = dnsmasq(net, &[]) else { return };
        // Mounts made later would not be seen below the prefix.
        let pod = pod(net);
        let host = net.dir().join("host");
        fs::create_dir_all(host.join("run")).unwrap();
        net.run("mount", &["--rbind", "/run", host.join("run").to_str().unwrap()]);
        let running = daemon(net, &["-hostprefix", host.to_str().unwrap()]);
        attach(net, &pod);
        assert_eq!(remembered(), 1);
        running.end(Signal::SIGKILL);
        call(net, "DEL", &pod, &json!({})).success();
        leased(net, 0);
    });
}

#[test]
fn the_multicall_name_works_too_and_the_daemon_is_no_plugin_call() {
    sandbox(|net| {
        let cnibox = fs::canonicalize(net.cni_path().join("dhcp")).unwrap();
        let mut command = Command::new(cnibox);
        command.args(["dhcp", "daemon"]).env("CNI_COMMAND", "ADD");
        let running = Process::start(net, "multicall", command).unwrap();
        eventually("it listens", || Path::new(SOCKET).exists(), || running.log());
    });
}
