// SPDX-License-Identifier: Apache-2.0
//! The executable as it is called: by which name it is which plugin, and being installed while it is called.

#![expect(clippy::unwrap_used, reason = "that is how a test fails")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CNIBOX: &str = env!("CARGO_BIN_EXE_cnibox");

/// Runs it under the name `arg0`, without any environment.
fn called(arg0: &str, args: &[&str]) -> Output {
    Command::new(CNIBOX).arg0(arg0).args(args).env_clear().stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_exact_base_name_or_the_first_argument_chooses_the_plugin() {
    let plugin = |arg0, args: &[&str]| {
        let output = called(arg0, args);
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "");
        text(&output.stderr).lines().next().unwrap().to_owned()
    };
    for (arg0, args) in [
        ("loopback", &[][..]),
        ("/opt/cni/bin/loopback", &[]),
        ("buildkit-cni-loopback", &[]),
        ("loopback", &["install", "/nonexistent"]),
        ("cnibox", &["loopback"]),
        ("anything", &["loopback"]),
    ] {
        assert!(plugin(arg0, args).starts_with("CNI loopback plugin v1.9.1+cnibox."), "{arg0} {args:?}");
    }
}

#[test]
fn without_a_plugin_it_is_a_tool() {
    let alone = called("cnibox", &[]);
    assert!(alone.status.success());
    assert!(text(&alone.stdout).starts_with("cnibox v1.9.1+cnibox."));
    assert_eq!(called("cnibox", &["help"]).stdout, alone.stdout);
    assert_eq!(called("notloopback", &[]).stdout, alone.stdout);
    assert!(text(&called("cnibox", &["list"]).stdout).contains("loopback\n"));
    let unknown = called("cnibox", &["nope"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(text(&unknown.stdout), "");
    assert!(text(&unknown.stderr).contains("unknown command \"nope\""));
}

fn operate(cnibox: &Path, args: &[&str], dir: &Path) {
    let output = Command::new(cnibox).args(args).arg(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
}

/// A runtime that calls plugins all the time must not notice that they are replaced: no file is missing, none is being
/// written. The files are made by other processes, since one that this process has open for writing could be inherited
/// by another test's child and be busy.
#[test]
fn plugins_can_be_called_while_they_are_installed_and_uninstalled() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("bin");
    fs::create_dir(&dir).unwrap();
    let make = "{ cat /bin/true; printf CNI_COMMAND; } > bin/loopback && chmod 755 bin/loopback";
    assert!(Command::new("sh").args(["-c", make]).current_dir(&root).status().unwrap().success());
    // Of what is copied eighteen times over and read again, most is for debuggers. Who can link has binutils.
    let cnibox = root.path().join("cnibox");
    assert!(Command::new("strip").arg("-o").args([&cnibox, Path::new(CNIBOX)]).status().unwrap().success());
    let script =
        "while [ ! -e ../stop ]; do ./loopback 2>../said || { cat ../said >&2; exit 1; }; echo; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(&dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let caller = shell.spawn().unwrap();
    for form in ["--symlink", "--hardlink", "--copy"].iter().cycle().take(24) {
        operate(&cnibox, &["install", form], &dir);
        operate(&cnibox, &["install", "--symlink"], &dir);
        operate(&cnibox, &["uninstall"], &dir);
    }
    fs::write(root.path().join("stop"), "").unwrap();
    let output = caller.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    assert!(output.stdout.len() > 100, "called only {} times", output.stdout.len());
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["loopback"]);
}
