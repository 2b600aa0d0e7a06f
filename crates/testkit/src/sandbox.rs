// SPDX-License-Identifier: Apache-2.0
//! A thread with a network and a mount namespace of its own, and pods inside it.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cnibox_netns::NetNs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::create_at;

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
/// [`Sandbox::dir`] are empty. Threads and processes that the test starts are in there too. The shell commands in
/// `CNIBOX_HOST` are run in there first: they make it another kind of host.
///
/// # Panics
/// If the test does, and if namespaces cannot be made although `REQUIRE_NETNS=1`; without that the test is skipped.
pub fn sandbox(test: impl FnOnce(&Sandbox) + Send) {
    // Named as the test's own, so that what is skipped or fails in there says which test that was.
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let outcome = std::thread::scope(|scope| {
        let inside = || Sandbox::enter().map(|net| test(&net));
        let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, inside);
        thread.expect("start the sandbox's thread").join()
    });
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => skip(&reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Says that a test cannot run here; under `REQUIRE_NETNS=1` that is a failure. `scripts/test` lists what was skipped.
///
/// # Panics
/// Under `REQUIRE_NETNS=1`.
pub fn skip(reason: &str) {
    let required = std::env::var("REQUIRE_NETNS").is_ok_and(|value| value == "1");
    assert!(!required, "cannot run here: {reason}");
    note(reason);
}

/// Says that a test cannot run because the running kernel was built without something. `scripts/test` runs such tests
/// again in a complete kernel, with `REQUIRE_FULL_KERNEL=1`, and there it is a failure.
///
/// # Panics
/// Under `REQUIRE_FULL_KERNEL=1`.
pub fn lacks(feature: &str) {
    let required = std::env::var("REQUIRE_FULL_KERNEL").is_ok_and(|value| value == "1");
    assert!(!required, "the complete kernel has no {feature}");
    note(&format!("the kernel has no {feature}; `scripts/test all` runs this in a complete one"));
}

/// Says that a test cannot run because the running kernel has something. `scripts/test` runs such tests again in a kernel
/// that was built without it, with `REQUIRE_LACKING_KERNEL=1`, and there it is a failure.
///
/// # Panics
/// Under `REQUIRE_LACKING_KERNEL=1`.
pub fn has(feature: &str) {
    let required = std::env::var("REQUIRE_LACKING_KERNEL").is_ok_and(|value| value == "1");
    assert!(!required, "the lacking kernel has {feature}");
    note(&format!("the kernel has {feature}; `scripts/test all` runs this in one that has not"));
}

/// Whether the kernel has IPv6, and was not told to do without it.
pub fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

/// Tells people, and the file that `CNIBOX_SKIPS` names: what a test that passes prints is shown to nobody.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn note(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("a thread of a test"));
    eprint!("SKIP: {line}");
    if let Some(path) = std::env::var_os("CNIBOX_SKIPS") {
        let mut file = File::options().append(true).create(true).open(path).expect("open CNIBOX_SKIPS");
        // In one call, so that tests that run at the same time do not mix their lines.
        file.write_all(line.as_bytes()).expect("write to CNIBOX_SKIPS");
    }
}

impl Sandbox {
    #[expect(clippy::disallowed_methods, reason = "the thread ends with the test")]
    fn enter() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
            .map_err(|errno| format!("unshare network and mount namespaces: {errno}"))?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            .map_err(|errno| format!("make mounts private: {errno}"))?;
        let own = own_directories();
        for dir in ["/run", "/var/lib"] {
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), None::<&str>)
                .map_err(|errno| format!("mount tmpfs on {dir}: {errno}"))?;
        }
        own.iter().filter(|(path, _)| !path.exists()).try_for_each(bring_back)?;
        // In the private /run, so that it disappears with the mount namespace, also after a panic.
        let dir = PathBuf::from("/run/testkit");
        for dir in [dir.as_path(), Path::new("/run/netns")] {
            fs::create_dir(dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        }
        let netns = NetNs::current().map_err(|error| error.to_string())?;
        let net = Self { netns, dir, containers: Cell::new(0) };
        net.run("ip", &["link", "set", "lo", "up"]);
        if let Ok(commands) = std::env::var("CNIBOX_HOST") {
            net.run("sh", &["-ec", &commands]);
        }
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

    /// Whether a command that is run in the sandbox's network can be started and succeeds.
    ///
    /// # Panics
    /// If the network cannot be entered.
    pub fn succeeds(&self, program: &str, args: &[&str]) -> bool {
        let quiet = || Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
        self.netns.run(quiet).expect("enter the sandbox").is_ok_and(|status| status.success())
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

/// The sources and what is built of them, open: they may lie below a directory that the sandbox hides.
fn own_directories() -> Vec<(PathBuf, File)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned);
    let test = std::env::current_exe().ok();
    // TARGET/TRIPLE/PROFILE/deps/TEST
    let built = test.as_deref().and_then(|test| test.ancestors().nth(4)).map(Path::to_owned);
    let both = sources.into_iter().chain(built);
    both.filter_map(|path| File::open(&path).ok().map(|open| (path, open))).collect()
}

/// Binds an open directory to the path that it had.
fn bring_back((path, open): &(PathBuf, File)) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("bring {} back: {error}", path.display());
    fs::create_dir_all(path).map_err(|error| failed(&error))?;
    let hidden = format!("/proc/self/fd/{}", open.as_raw_fd());
    mount(Some(hidden.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .map_err(|errno| failed(&errno))
}

fn printed(program: &str, args: &[&str], output: std::io::Result<std::process::Output>) -> String {
    let output = output.unwrap_or_else(|error| panic!("start {program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {}: {stderr}", args.join(" "), output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

static IDS: AtomicU32 = AtomicU32::new(0);
