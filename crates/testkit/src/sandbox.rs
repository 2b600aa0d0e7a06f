// SPDX-License-Identifier: Apache-2.0
//! A thread with a network and a mount namespace of its own, and pods inside it.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cnibox_netns::{NetNs, create_at};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The namespaces a test runs in. They end with the test's thread.
#[derive(Debug)]
pub struct Sandbox {
    netns: NetNs,
    dir: PathBuf,
    containers: Cell<u32>,
}

/// A pod: a network namespace bound to a path, with `lo` down, as runtimes hand it to plugins.
#[derive(Debug)]
pub struct Container {
    /// `CNI_CONTAINERID`.
    pub id: String,
    /// `CNI_NETNS`.
    pub path: PathBuf,
    /// The open namespace.
    pub netns: NetNs,
}

/// Runs `test` on a thread of its own, in fresh network and mount namespaces: `lo` is up, and `/run`, `/var/lib` and
/// [`Sandbox::dir`] are empty. Threads and processes that the test starts are in there too.
///
/// # Panics
/// If the test does, and if namespaces cannot be made although `REQUIRE_NETNS=1`; without that the test is skipped.
pub fn sandbox(test: impl FnOnce(&Sandbox) + Send) {
    let outcome = std::thread::scope(|scope| scope.spawn(|| Sandbox::enter().map(|net| test(&net))).join());
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => skip(&reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Says that a test cannot run here; under `REQUIRE_NETNS=1` that is a failure.
///
/// # Panics
/// Under `REQUIRE_NETNS=1`.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub fn skip(reason: &str) {
    let required = std::env::var("REQUIRE_NETNS").is_ok_and(|value| value == "1");
    assert!(!required, "cannot run here: {reason}");
    eprintln!("SKIP: {reason}");
}

/// Says that a test cannot run because the running kernel was built without something. `scripts/test` runs such tests
/// again in a complete kernel, with `REQUIRE_FULL_KERNEL=1`, and there it is a failure.
///
/// # Panics
/// Under `REQUIRE_FULL_KERNEL=1`.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub fn lacks(feature: &str) {
    let required = std::env::var("REQUIRE_FULL_KERNEL").is_ok_and(|value| value == "1");
    assert!(!required, "the complete kernel has no {feature}");
    eprintln!("SKIP: the kernel has no {feature}; scripts/test runs this in a complete one");
}

impl Sandbox {
    #[expect(clippy::disallowed_methods, reason = "the thread ends with the test")]
    fn enter() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
            .map_err(|errno| format!("unshare network and mount namespaces: {errno}"))?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .map_err(|errno| format!("make mounts private: {errno}"))?;
        for dir in ["/run", "/var/lib"] {
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), None::<&str>)
                .map_err(|errno| format!("mount tmpfs on {dir}: {errno}"))?;
        }
        // In the private /run, so that it disappears with the mount namespace, also after a panic.
        let dir = PathBuf::from("/run/testkit");
        for dir in [dir.as_path(), Path::new("/run/netns")] {
            fs::create_dir(dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        }
        let netns = NetNs::current().map_err(|error| error.to_string())?;
        let net = Self { netns, dir, containers: Cell::new(0) };
        net.run("ip", &["link", "set", "lo", "up"]);
        Ok(net)
    }

    /// The sandbox's own network namespace, the "host's".
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// An empty directory for state, gone with the sandbox.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A new pod. Its namespace lives as long as the sandbox, or until it is deleted with `ip netns del`.
    pub fn container(&self) -> Container {
        let number = self.containers.get();
        self.containers.set(number + 1);
        // Unique in the process, because some plugins derive names outside the sandbox from it.
        let id = format!("pod{number}-{:x}", IDS.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from("/run/netns").join(&id);
        let netns = create_at(&path).expect("create the pod's namespace");
        Container { id, path, netns }
    }

    /// Waits until a pod has the route to an IPv6 address of its own, which the kernel makes on a work queue, some time
    /// after the address.
    ///
    /// # Panics
    /// If it does not.
    pub fn await_local_route(&self, pod: &Container, address: &str) {
        let patience = Instant::now() + Duration::from_secs(5);
        while !self.run_in(pod, "ip", &["-6", "route", "show", "table", "local"]).contains(address) {
            assert!(Instant::now() < patience, "no local route to {address}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs a command in the sandbox's network and returns what it printed.
    ///
    /// # Panics
    /// If it cannot be started or fails.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.netns.run(|| Command::new(program).args(args).output()).expect("enter the sandbox");
        printed(program, args, output)
    }

    /// Runs a command in a pod's network and returns what it printed.
    ///
    /// # Panics
    /// If it cannot be started or fails.
    pub fn run_in(&self, pod: &Container, program: &str, args: &[&str]) -> String {
        let output = pod.netns.run(|| Command::new(program).args(args).output()).expect("enter the pod");
        printed(program, args, output)
    }
}

fn printed(program: &str, args: &[&str], output: std::io::Result<std::process::Output>) -> String {
    let output = output.unwrap_or_else(|error| panic!("start {program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {}: {stderr}", args.join(" "), output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

static IDS: AtomicU32 = AtomicU32::new(0);
