// SPDX-License-Identifier: Apache-2.0
//! A network with a DHCP server on the host, containers on it, and the daemon.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cnibox_testkit::{Container, Outcome, Sandbox, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Where the daemon listens unless a test says otherwise.
pub(crate) const SOCKET: &str = "/run/cni/dhcp.sock";

/// A process that ends with this.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in the sandbox's network; what it says is in a file.
    pub(crate) fn start(net: &Sandbox, name: &str, mut command: Command) -> std::io::Result<Self> {
        let log = net.dir().join(format!("{name}.log"));
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = net.netns().run(|| command.spawn()).unwrap()?;
        Ok(Self { child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it and its predecessors of the same name have said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has said `text` so often.
    #[track_caller]
    pub(crate) fn says(&self, text: &str, times: usize) {
        eventually(text, || self.log().matches(text).count() >= times, || self.log());
    }

    /// Ends it by a signal; returns the exit status, -1 for one that was killed.
    pub(crate) fn end(mut self, signal: Signal) -> i32 {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `done`; gives up after some seconds with what `state` says.
#[track_caller]
pub(crate) fn eventually(what: &str, done: impl Fn() -> bool, state: impl Fn() -> String) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < patience, "{what:?} did not happen:\n{}", state());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The host's bridge, `lan`, with the server's address.
pub(crate) fn lan(net: &Sandbox) {
    for command in ["link add lan type bridge", "addr add 192.168.7.1/24 dev lan", "link set lan up"] {
        net.run("ip", &command.split(' ').collect::<Vec<_>>());
    }
}

/// A container with `eth0` on the bridge, down and without an address.
pub(crate) fn pod(net: &Sandbox) -> Container {
    let pod = net.container();
    let port = format!("p{}", &pod.id[3..]);
    net.run("ip", &["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pod.id]);
    net.run("ip", &["link", "set", &port, "master", "lan", "up"]);
    pod
}

/// dnsmasq on the bridge with these options besides; `None` after a skip.
pub(crate) fn dnsmasq(net: &Sandbox, options: &[&str]) -> Option<Process> {
    let mut command = Command::new("dnsmasq");
    command
        .args(["--no-daemon", "--port=0", "--conf-file=/dev/null", "--no-ping", "--log-dhcp", "--pid-file="])
        .args(["--dhcp-authoritative", "--interface=lan", "--dhcp-range=192.168.7.10,192.168.7.60,120"])
        .arg(format!("--dhcp-leasefile={}", leases_file(net).display()))
        .args(options);
    match Process::start(net, "dnsmasq", command) {
        Ok(process) => {
            process.says("dnsmasq-dhcp: DHCP, ", 1);
            Some(process)
        }
        Err(_) => {
            skip("dnsmasq is not installed");
            None
        }
    }
}

fn leases_file(net: &Sandbox) -> PathBuf {
    net.dir().join("dnsmasq.leases")
}

/// The leases that dnsmasq has granted, a line each.
pub(crate) fn leases(net: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(leases_file(net)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until dnsmasq has so many leases.
#[track_caller]
pub(crate) fn leased(net: &Sandbox, count: usize) {
    eventually(&format!("{count} leases"), || leases(net).len() == count, || leases(net).join("\n"));
}

/// The daemon, ready for calls, with these flags besides.
#[track_caller]
pub(crate) fn daemon(net: &Sandbox, flags: &[&str]) -> Process {
    daemon_of(net, &net.cni_path().join("dhcp"), flags)
}

/// The same of another executable.
#[track_caller]
pub(crate) fn daemon_of(net: &Sandbox, program: &Path, flags: &[&str]) -> Process {
    let mut command = Command::new(program);
    command.args(["daemon", "-timeout", "500ms", "-resendmax", "1s", "-resendtimeout", "4s"]).args(flags);
    let process = Process::start(net, "daemon", command).unwrap();
    let answers = || std::os::unix::net::UnixStream::connect(SOCKET).is_ok();
    eventually("the daemon answers", answers, || process.log());
    process
}

/// A configuration with these members of `ipam`.
pub(crate) fn conf(ipam: &Value) -> Value {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "net", "type": "macvlan", "ipam": {"type": "dhcp"}});
    conf["ipam"].as_object_mut().unwrap().extend(ipam.as_object().unwrap().clone());
    conf
}

pub(crate) fn call(net: &Sandbox, verb: &str, pod: &Container, ipam: &Value) -> Outcome {
    net.cni("dhcp", verb, pod, &conf(ipam).to_string())
}

/// Starts a call and does not wait for it.
pub(crate) fn start(net: &Sandbox, verb: &str, pod: &Container) -> Child {
    start_of(net, &net.cni_path().join("dhcp"), verb, pod, &json!({}))
}

/// The same of another executable and with these members of `ipam`.
pub(crate) fn start_of(net: &Sandbox, program: &Path, verb: &str, pod: &Container, ipam: &Value) -> Child {
    let mut command = Command::new(program);
    command
        .envs([("CNI_COMMAND", verb), ("CNI_IFNAME", "eth0"), ("CNI_PATH", "/nowhere")])
        .envs([("CNI_CONTAINERID", pod.id.as_str()), ("CNI_ARGS", "IgnoreUnknown=1;NAME=web-7")])
        .env("CNI_NETNS", &pod.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = net.netns().run(|| command.spawn()).unwrap().unwrap();
    child.stdin.take().unwrap().write_all(conf(ipam).to_string().as_bytes()).unwrap();
    child
}

/// ADD, and what a main plugin does with the result.
#[track_caller]
pub(crate) fn attach(net: &Sandbox, pod: &Container) -> String {
    let result = call(net, "ADD", pod, &json!({})).success();
    let address = result["ips"][0]["address"].as_str().unwrap().to_owned();
    net.run_in(pod, "ip", &["addr", "add", &address, "dev", "eth0"]);
    address
}

/// Threads of the daemon that keep leases.
fn lease_threads(daemon: &Process) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let names = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "lease").count()
}

/// Waits until the daemon keeps `count` leases. A thread bears its parent's name until it has given itself its own, so
/// that one of a lease that closes a socket is counted as a lease for a moment.
#[track_caller]
pub(crate) fn keeps_leases(daemon: &Process, count: usize) {
    let what = format!("the daemon keeps {count} leases");
    eventually(&what, || lease_threads(daemon) == count, || daemon.log());
}

/// Leases that the daemon remembers on disk.
pub(crate) fn remembered() -> usize {
    fs::read_dir("/run/cnibox/dhcp").into_iter().flatten().count()
}

/// Waits until nothing is left of any lease.
#[track_caller]
pub(crate) fn nothing_kept(daemon: &Process) {
    let state = || format!("{} threads, {} files", lease_threads(daemon), remembered());
    eventually("nothing is kept", || lease_threads(daemon) == 0 && remembered() == 0, state);
}
