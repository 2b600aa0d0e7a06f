// SPDX-License-Identifier: Apache-2.0
//! A host with one living neighbour, and containers that come and go badly.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cnibox_testkit::{Container, Sandbox, diff, sandbox};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::networks::{self, Network};

/// Whose plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// This project's.
    Ours,
    /// The Go reference plugins, in the directory that `CNIBOX_REFERENCE` names.
    Go,
}

impl Side {
    /// As in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "cnibox",
            Self::Go => "Go plugins",
        }
    }

    /// Where the executables are; `None` when the Go plugins are not here.
    pub(crate) fn dir(self) -> Option<PathBuf> {
        match self {
            // Every sandbox sees the same file system outside /run and /var/lib.
            Self::Ours => Some(PathBuf::from("/run/testkit/ours")),
            Self::Go => std::env::var_os("CNIBOX_REFERENCE")
                .map(PathBuf::from)
                .filter(|dir| dir.join("bridge").exists()),
        }
    }
}

/// Runs `scenario` in a world of its own for each network, with the network's number.
pub(crate) fn on_each(
    networks: Vec<Network>,
    side: Side,
    mut scenario: impl FnMut(usize, &World<'_>) + Send,
) {
    for (number, network) in networks.into_iter().enumerate() {
        on_one(network, side, |world| scenario(number, world));
    }
}

/// The same on all of them at once, for what waits more than it computes.
///
/// # Panics
/// When the scenario does on one of them.
pub(crate) fn on_all(networks: Vec<Network>, side: Side, scenario: impl Fn(usize, &World<'_>) + Sync) {
    let scenario = &scenario;
    // Named as the test's own, so that what is skipped or fails says which test that was.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    std::thread::scope(|scope| {
        for (number, network) in networks.into_iter().enumerate() {
            let run = move || on_one(network, side, |world| scenario(number, world));
            let thread = std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, run);
            drop(thread.expect("start a network's thread"));
        }
    });
}

fn on_one(network: Network, side: Side, scenario: impl FnOnce(&World<'_>) + Send) {
    sandbox(|net| {
        if supported(net, &network) {
            scenario(&World::new(net, network, side));
        }
    });
}

/// Makes the directory of our own plugins in this sandbox.
pub(crate) fn install() {
    let dir = Path::new("/run/testkit/ours");
    if std::fs::create_dir(dir).is_ok() {
        for plugin in cnibox_testkit::PLUGINS {
            symlink(binary(), dir.join(plugin)).expect("link a plugin");
        }
    }
}

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_cnibox").into()
}

/// One call of a plugin.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Whose plugin.
    pub(crate) side: Side,
    /// Its name.
    pub(crate) plugin: String,
    /// Environment, `CNI_COMMAND` included.
    pub(crate) env: Vec<(String, String)>,
    /// Configuration.
    pub(crate) stdin: String,
    /// A command to run it under.
    pub(crate) under: Vec<String>,
}

/// What a call answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Exit status; `None` after a signal.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Answer {
    /// Whether the call succeeded.
    pub(crate) fn ok(&self) -> bool {
        self.status == Some(0)
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or(Value::Null)
    }

    /// What is not right about it as an answer: neither success nor exit status 1 with an error object.
    pub(crate) fn unclean(&self) -> Option<String> {
        let object = self.json();
        let explained = object["code"].is_u64() && object["msg"].is_string();
        let defect = self.stdout.contains("cnibox defect");
        match self.status {
            Some(0) if !defect => None,
            Some(1) if explained && !defect => None,
            _ => Some(format!("no clean answer: {:?} {:?} {:?}", self.status, self.stdout, self.stderr)),
        }
    }
}

impl Call {
    /// Sets or changes a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it, inside the sandbox of the thread.
    pub(crate) fn start(&self) -> Child {
        let dir = self.side.dir().expect("plugins of this side");
        let program = dir.join(&self.plugin);
        let mut command = if self.under.is_empty() {
            let mut command = Command::new(&program);
            command.arg0(&program);
            command
        } else {
            // For a program that must be looked for, the standard library forks.
            let mut command = Command::new("/usr/bin/env");
            command.args(&self.under).arg(&program);
            command
        };
        command
            // Where a file that a call writes below its own directory is found (`hostile`).
            .current_dir("/run")
            .process_group(0)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env(
                "CNI_PATH",
                self.env
                    .iter()
                    .find(|(name, _)| name == "CNI_PATH")
                    .map_or(dir.as_os_str(), |(_, path)| path.as_ref()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("start {}: {error}", program.display()));
        if let Some(mut stdin) = child.stdin.take() {
            // It may well exit without reading.
            let _ = stdin.write_all(self.stdin.as_bytes());
        }
        child
    }

    /// Runs it to its end. A Go plugin that hangs is killed: one more thing that the table tells.
    ///
    /// # Panics
    /// When ours hangs.
    pub(crate) fn run(&self) -> Answer {
        let mut child = self.start();
        // They hang often enough where system calls fail.
        let patience =
            Duration::from_secs(if self.side == Side::Go && !self.under.is_empty() { 20 } else { 60 });
        wait(&mut child, patience).unwrap_or_else(|| {
            // With what it has started, and what strace holds.
            let group = Pid::from_raw(child.id().cast_signed());
            killpg(group, Signal::SIGKILL).expect("kill what hangs");
            assert!(self.side == Side::Go, "{self:?} hangs");
            let _ = child.wait();
            Answer { status: None, stdout: String::new(), stderr: format!("hangs after {patience:?}") }
        })
    }
}

/// Waits for a call that answers with less than a pipe holds; `None` when it still runs after `patience`.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> Option<Answer> {
    let deadline = Instant::now() + patience;
    // Whoever takes long is asked less often: many that wait keep the processors busy with nothing else.
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait().expect("wait for a plugin") {
            let read = |stream: Option<&mut dyn Read>| {
                let mut bytes = Vec::new();
                stream.map(|stream| stream.read_to_end(&mut bytes));
                String::from_utf8_lossy(&bytes).into_owned()
            };
            return Some(Answer {
                status: status.code(),
                stdout: read(child.stdout.as_mut().map(|stream| stream as &mut dyn Read)),
                stderr: read(child.stderr.as_mut().map(|stream| stream as &mut dyn Read)),
            });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 5 / 4).min(Duration::from_millis(10));
    }
}

/// An attachment as a runtime knows it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// `CNI_CONTAINERID`.
    pub(crate) id: String,
    /// `CNI_NETNS`.
    pub(crate) netns: String,
    /// `CNI_IFNAME`.
    pub(crate) ifname: String,
}

impl Target {
    /// The interface eth0 of a container.
    pub(crate) fn of(pod: &Container) -> Self {
        let netns = pod.path.to_string_lossy().into_owned();
        Self { id: pod.id.clone(), netns, ifname: "eth0".to_owned() }
    }
}

/// A network on a host.
pub(crate) struct World<'a> {
    /// The host.
    pub(crate) net: &'a Sandbox,
    /// The network.
    pub(crate) network: Network,
    /// Whose plugins run.
    pub(crate) side: Side,
    /// The container that lives all the time.
    pub(crate) neighbour: Target,
    /// What a container has to begin with.
    empty: String,
}

impl<'a> World<'a> {
    /// The network with one living neighbour, so that everything shared is there.
    pub(crate) fn new(net: &'a Sandbox, network: Network, side: Side) -> Self {
        install();
        // Addresses that stay tentative for a second or two would be all that scenarios wait for.
        for scope in ["all", "default"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/accept_dad"), "0").expect("turn DAD off");
        }
        net.run("sh", &["-ec", network.host]);
        let neighbour = Target::of(&net.container());
        let empty = inside(net, &neighbour.id);
        let mut world = Self { net, network, side, neighbour, empty };
        let ports = world.network.ports.clone();
        if let Some(port) = ports[0]["hostPort"].as_u64() {
            world.network = world.network.with_ports(port as usize + 500);
        }
        world.add(&world.neighbour).expect("ADD of the neighbour");
        world.network.ports = ports;
        world.settle();
        world
    }

    /// The same host with another configuration.
    pub(crate) fn with(&self, network: Network) -> World<'a> {
        let (neighbour, empty) = (self.neighbour.clone(), self.empty.clone());
        World { net: self.net, network, side: self.side, neighbour, empty }
    }

    /// One plugin's configuration for an attachment, with what can only be used once chosen for it.
    fn conf(&self, index: usize, prev: &Value, target: &Target) -> Value {
        let mut conf = self.network.conf(index, prev);
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let number =
            target.id.strip_prefix("pod").map(digits).and_then(|number| number.parse::<usize>().ok());
        let number = number.filter(|_| target.id != self.neighbour.id).map_or(0, |number| 1 + number % 7);
        for (key, value) in [("device", json!(format!("lend{number}"))), ("vlanId", json!(100 + number))] {
            if conf[key] == "@" {
                conf[key] = value;
            }
        }
        conf
    }

    /// One plugin's call.
    pub(crate) fn call(&self, index: usize, verb: &str, target: &Target, prev: &Value) -> Call {
        Call {
            side: self.side,
            plugin: self.network.kind(index).to_owned(),
            env: Vec::new(),
            stdin: self.conf(index, prev, target).to_string(),
            under: Vec::new(),
        }
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &target.id)
        .env("CNI_NETNS", &target.netns)
        .env("CNI_IFNAME", &target.ifname)
    }

    /// ADD of the whole chain. As with libcni, nothing is cleaned up when a plugin fails.
    pub(crate) fn add(&self, target: &Target) -> Result<Value, Answer> {
        self.add_behind(target, Value::Null)
    }

    /// The same behind a plugin that answered with `result`.
    pub(crate) fn add_behind(&self, target: &Target, mut result: Value) -> Result<Value, Answer> {
        for index in 0..self.network.plugins.len() {
            let answer = self.call(index, "ADD", target, &result).run();
            if !answer.ok() {
                return Err(answer);
            }
            result = answer.json();
        }
        Ok(result)
    }

    /// DEL of the whole chain, backwards.
    pub(crate) fn del(&self, target: &Target, prev: &Value) -> Result<(), Answer> {
        for index in (0..self.network.plugins.len()).rev() {
            let answer = self.call(index, "DEL", target, prev).run();
            if !answer.ok() {
                return Err(answer);
            }
        }
        Ok(())
    }

    /// DEL where nothing was injected. That of the Go plugins may fail all the same: on an nftables masquerade it asks
    /// iptables for rules that were never there.
    pub(crate) fn expect_del(&self, target: &Target, prev: &Value) {
        let outcome = self.del(target, prev);
        assert!(outcome.is_ok() || self.side == Side::Go, "DEL: {outcome:?}");
    }

    /// CHECK of the whole chain. What sbr and vrf have moved to another table, the plugin before them looks for in vain,
    /// with the Go plugins, too.
    pub(crate) fn check(&self, target: &Target, prev: &Value) -> Result<(), Answer> {
        let moves = |plugin: &Value| plugin["type"] == "sbr" || plugin["type"] == "vrf";
        let moved = self.network.plugins.iter().any(moves);
        for index in usize::from(moved)..self.network.plugins.len() {
            let answer = self.call(index, "CHECK", target, prev).run();
            if !answer.ok() {
                return Err(answer);
            }
        }
        Ok(())
    }

    /// GC of the whole chain; `None` is a runtime that sends no list.
    pub(crate) fn gc(&self, valid: Option<&[&Target]>) -> Result<(), Answer> {
        for index in 0..self.network.plugins.len() {
            let mut conf = self.conf(index, &Value::Null, &self.neighbour);
            if let Some(valid) = valid {
                let live: Vec<_> =
                    valid.iter().map(|live| json!({"containerID": live.id, "ifname": live.ifname})).collect();
                conf["cni.dev/valid-attachments"] = json!(live);
            }
            let call = Call {
                side: self.side,
                plugin: self.network.kind(index).to_owned(),
                env: Vec::new(),
                stdin: conf.to_string(),
                under: Vec::new(),
            };
            let answer = call.env("CNI_COMMAND", "GC").run();
            if !answer.ok() {
                return Err(answer);
            }
        }
        Ok(())
    }

    /// The host as text, without what is documented to change: the last reserved address.
    pub(crate) fn host(&self) -> String {
        let snapshot = self
            .net
            .snapshot()
            .without("last_reserved_ip")
            .without("/run/cnibox/host-local")
            .without("/run/cnibox/inventory");
        without_timers(&format!("{snapshot:?}"))
    }

    /// What differs from `before` on the host, and whether the container still has its interface. Empty if nothing.
    pub(crate) fn left(&self, before: &str, target: &Target) -> String {
        let mut left = self.left_on_host(before);
        if Path::new(&target.netns).exists() {
            let inside = diff(&self.empty, &inside(self.net, &target.id));
            left.extend(inside.lines().map(|line| format!("{line} (in the container)\n")));
        }
        left
    }

    /// Whether the container has its interface.
    pub(crate) fn has_interface(&self, target: &Target) -> bool {
        let links = self.net.run("ip", &["-n", &target.id, "-br", "link"]);
        links.lines().any(|line| line.split(['@', ' ']).next() == Some(&target.ifname))
    }

    /// What differs from `before` on the host. Empty if nothing.
    pub(crate) fn left_on_host(&self, before: &str) -> String {
        self.differs(before, |line| !line.is_empty())
    }

    /// The same but for devices that can be lent: those that are in a container when its namespace goes are only given
    /// back when they are more than software.
    pub(crate) fn left_but_devices(&self, before: &str) -> String {
        self.differs(before, |line| !line.contains("lend") && !line.contains("lent"))
    }

    fn differs(&self, before: &str, counts: impl Fn(&str) -> bool) -> String {
        let counting = |text: &str| {
            text.lines().filter(|line| counts(line)).map(|line| format!("{line}\n")).collect::<String>()
        };
        let before = counting(before);
        let mut left = diff(&before, &counting(&self.host()));
        // The kernel is not done with a namespace's links the moment that they are deleted.
        for _ in 0..50 {
            if left.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            left = diff(&before, &counting(&self.host()));
        }
        left
    }

    /// Deletes a container's namespace, and makes the devices again that went with it.
    pub(crate) fn bury(&self, target: &Target) {
        self.net.run("sh", &["-c", &format!("ip netns del {} 2>/dev/null; true", target.id)]);
        if self.network.host == networks::DEVICES {
            // The kernel takes its time; a device that is there stays.
            std::thread::sleep(Duration::from_millis(200));
            self.net.run("sh", &["-c", networks::DEVICES]);
        }
    }

    /// Waits until the kernel has finished what follows an ADD by itself, IPv6 link-local addresses among it.
    pub(crate) fn settle(&self) {
        let mut before = self.host();
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            let now = self.host();
            if now == before && !self.net.run("ip", &["-6", "address"]).contains("tentative") {
                return;
            }
            before = now;
        }
    }

    /// Whether the next container works: ADD, CHECK, DEL, and nothing left. Empty if so.
    pub(crate) fn next_works(&self, before: &str, target: &Target) -> String {
        let result = match self.add(target) {
            Ok(result) => result,
            Err(answer) => return format!("next ADD: {answer:?}\n"),
        };
        // The Go plugins cannot check a network without addresses.
        if self.side == Side::Ours
            && let Err(answer) = self.check(target, &result)
        {
            return format!("next CHECK: {answer:?}\n");
        }
        if let Err(answer) = self.del(target, &result) {
            return format!("next DEL: {answer:?}\n");
        }
        self.left(before, target)
    }
}

/// What a container has: links, addresses, routes, rules, disciplines, rulesets, settings.
fn inside(net: &Sandbox, id: &str) -> String {
    let list = "ip -o link | cut -d: -f2-; ip -o addr show scope global | cut -d' ' -f2-; ip rule; ip -6 rule; \
        ip route show table all; ip -6 route show table all; ip neigh show nud permanent; tc qdisc show; \
        nft list ruleset; sysctl net.ipv4.ip_forward net.ipv4.conf.all.forwarding net.ipv4.conf.default.forwarding";
    let listed = net.run("ip", &["netns", "exec", id, "sh", "-ec", list]);
    // The kernel's own rule appears with the first VRF and stays. GC and DEL without a namespace do not take lo down. (The
    // sysctls that tuning set stay, as with the reference: they are not looked at.)
    let own =
        |line: &str| line.contains("l3mdev-table") || line.contains("dev lo ") || line.starts_with(" lo:");
    let lines = listed.lines().filter(|line| !own(line));
    // The other end's name is no matter of the container's.
    lines.map(|line| line.split('@').next().unwrap_or(line).to_owned() + "\n").collect()
}

/// Whether the running kernel has what the network needs; says so when not.
pub(crate) fn supported(net: &Sandbox, network: &Network) -> bool {
    network.needs.iter().all(|need| {
        let kind = match *need {
            "filtering" => "bridge vlan_filtering 1",
            kind => kind,
        };
        let probe = format!("ip link add probe0 type {kind} 2>&1; ip link del probe0 2>/dev/null; true");
        let said = net.run("sh", &["-c", &probe]);
        let lacking = said.contains("Unknown device type") || said.contains("not supported");
        if lacking {
            cnibox_testkit::lacks(need);
        }
        !lacking
    })
}

/// The timers of bridge ports run.
fn without_timers(text: &str) -> String {
    let mut parts = text.split("_timer\":");
    let mut steady = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        steady.push_str("_timer\":");
        steady.push_str(part.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.'));
    }
    steady
}
