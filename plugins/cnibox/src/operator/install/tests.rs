// SPDX-License-Identifier: Apache-2.0
use super::*;
use tempfile::TempDir;

use crate::operator::help::MARK;

/// A directory of plugins, and an executable to install that is not in it.
struct Node {
    root: TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("source"), cnibox("ours")).unwrap();
        Self { root }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("bin")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.dir()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn install(&self, change: impl FnOnce(&mut Install<'_>)) -> (Result<()>, String) {
        self.install_from(&self.root.path().join("source"), change)
    }

    fn install_from(&self, source: &Path, change: impl FnOnce(&mut Install<'_>)) -> (Result<()>, String) {
        let (dir, names, form) = (self.dir(), names(), Form::Symlink);
        let mut install = Install { dir: &dir, source, names, form, force: false, dry_run: false };
        change(&mut install);
        let mut out = Vec::new();
        let outcome = install.run(&mut out);
        (outcome, String::from_utf8(out).unwrap())
    }

    fn installed(&self, change: impl FnOnce(&mut Install<'_>)) -> String {
        let (outcome, told) = self.install(change);
        outcome.unwrap();
        told
    }

    fn uninstall(&self) -> String {
        let mut out = Vec::new();
        uninstall(&self.dir(), &names(), false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Every entry and what it is, for comparisons.
    fn listing(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.dir()) else { return Vec::new() };
        let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        let describe = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            match fs::read_link(path) {
                Ok(target) => format!("{name} -> {}", target.display()),
                Err(_) if path.is_dir() => format!("{name}/"),
                Err(_) => name.to_owned(),
            }
        };
        entries.iter().map(describe).collect()
    }
}

#[test]
fn nobody_else_may_touch_a_file_that_is_not_complete() {
    let node = Node::new();
    let (source, copy) = (node.root.path().join("pipe"), node.root.path().join("copy"));
    nix::unistd::mkfifo(&source, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mode = || fs::metadata(&copy).unwrap().permissions().mode() & 0o777;
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy_executable(&source, &copy));
        // The copy has begun once its source is opened.
        let mut source = fs::OpenOptions::new().write(true).open(&source).unwrap();
        assert_eq!(mode(), 0o600);
        source.write_all(b"whole").unwrap();
        drop(source);
        copying.join().unwrap().unwrap();
    });
    assert_eq!((mode(), fs::read(&copy).unwrap().as_slice()), (0o755, &b"whole"[..]));
}

fn names() -> Vec<String> {
    ["bridge", "loopback"].map(str::to_owned).into()
}

fn cnibox(text: &str) -> Vec<u8> {
    [b"\x7fELF", text.as_bytes(), b"\0CNI_COMMAND\0", MARK.as_bytes()].concat()
}

fn go_plugin(text: &str) -> Vec<u8> {
    [b"\x7fELF", text.as_bytes(), b"\0CNI_COMMAND\0"].concat()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_fresh_directory_gets_the_binary_and_links() {
    let node = Node::new();
    node.installed(|_| {});
    assert_eq!(node.listing(), ["bridge -> cnibox", "cnibox", "loopback -> cnibox"]);
    assert_eq!(node.read("bridge"), cnibox("ours"));
    assert_eq!((mode(&node.dir()), mode(&node.path("cnibox"))), (0o755, 0o755));
    node.uninstall();
    assert_eq!(node.listing(), [""; 0]);
}

#[test]
fn hard_links_and_copies_are_possible_and_can_be_changed_into_each_other() {
    let node = Node::new();
    for form in [Form::Hardlink, Form::Copy, Form::Hardlink, Form::Symlink, Form::Copy] {
        node.installed(|install| install.form = form);
        assert_eq!(node.read("loopback"), cnibox("ours"));
        assert_eq!(same_file(&node.path("bridge"), &node.path("cnibox")), form != Form::Copy);
        assert_eq!(node.path("bridge").is_symlink(), form == Form::Symlink);
        assert_eq!(node.listing().len(), 3, "{form:?}");
    }
    assert_eq!(mode(&node.path("bridge")), 0o755);
    node.uninstall();
    assert_eq!(node.listing(), [""; 0]);
}

#[test]
fn other_plugins_are_kept_and_come_back() {
    let node = Node::new();
    for (name, text) in [("bridge", "go bridge"), ("loopback", "go loopback"), ("ptp", "go ptp")] {
        node.write(name, &go_plugin(text));
    }
    let before = node.listing();
    let told = node.installed(|_| {});
    assert!(
        told.contains("bridge -> cnibox (replaces another plugin, old one kept in .cnibox-replaced)"),
        "{told}"
    );
    assert_eq!(node.read("bridge"), cnibox("ours"));
    assert_eq!(node.read(".cnibox-replaced/bridge"), go_plugin("go bridge"));
    assert_eq!(mode(&node.path(".cnibox-replaced")), 0o700);
    node.installed(|install| install.form = Form::Copy);
    assert_eq!(node.read(".cnibox-replaced/bridge"), go_plugin("go bridge"));
    let told = node.uninstall();
    assert!(told.contains("bridge (the old one is back)"), "{told}");
    assert_eq!(node.listing(), before);
    assert_eq!(node.read("bridge"), go_plugin("go bridge"));
}

#[test]
fn an_interrupted_installation_can_be_repeated() {
    let node = Node::new();
    node.write("bridge", &go_plugin("go"));
    keep(&node.dir(), "bridge").unwrap();
    node.installed(|_| {});
    assert_eq!(fs::read_dir(node.path(KEPT)).unwrap().count(), 1);
    node.uninstall();
    assert_eq!(node.listing(), ["bridge"]);
}

#[test]
fn links_to_other_plugins_come_back_as_links() {
    let node = Node::new();
    fs::write(node.root.path().join("elsewhere"), go_plugin("go")).unwrap();
    fs::create_dir(node.dir()).unwrap();
    symlink("../elsewhere", node.path("bridge")).unwrap();
    node.installed(|_| {});
    assert_eq!(node.read("bridge"), cnibox("ours"));
    assert_eq!(fs::read(node.root.path().join("elsewhere")).unwrap(), go_plugin("go"));
    node.uninstall();
    assert_eq!(node.listing(), ["bridge -> ../elsewhere"]);
}

#[test]
fn an_upgrade_replaces_the_binary_by_a_new_file() {
    let node = Node::new();
    node.installed(|_| {});
    let old = fs::metadata(node.path("cnibox")).unwrap().ino();
    fs::write(node.root.path().join("source"), cnibox("newer")).unwrap();
    let told = node.installed(|_| {});
    assert!(told.contains("(was cnibox already)"), "{told}");
    assert_ne!(fs::metadata(node.path("cnibox")).unwrap().ino(), old);
    assert_eq!(node.read("bridge"), cnibox("newer"));
    assert!(!node.path(KEPT).exists());
}

#[test]
fn installing_from_the_directory_itself_leaves_the_binary() {
    let node = Node::new();
    node.write("cnibox", &cnibox("ours"));
    let inode = || fs::metadata(node.path("cnibox")).unwrap().ino();
    let before = inode();
    node.install_from(&node.path("cnibox"), |_| {}).0.unwrap();
    assert_eq!(inode(), before);
    assert_eq!(node.read("bridge"), cnibox("ours"));
    for _ in 0..2 {
        node.install_from(&node.path("cnibox"), |install| install.form = Form::Hardlink).0.unwrap();
        assert_eq!(node.listing(), ["bridge", "cnibox", "loopback"]);
    }
}

#[test]
fn what_is_no_plugin_is_refused_before_anything_changed() {
    let node = Node::new();
    node.write("bridge", &go_plugin("go"));
    node.write("loopback", b"#!/bin/sh\n");
    node.write("cnibox", b"\x7fELF some other program");
    let before = (node.listing(), node.read("bridge"));
    let (outcome, told) = node.install(|_| {});
    let dir = node.dir().display().to_string();
    assert_eq!(
        format!("{:#}", outcome.unwrap_err()),
        format!(
            "nothing was changed, because of\n{dir}/cnibox: is a program but no CNI plugin\n\
             {dir}/loopback: is no compiled program\n--force replaces files that are no plugins"
        )
    );
    assert_eq!(told, "");
    assert_eq!((node.listing(), node.read("bridge")), before);
}

#[test]
fn force_replaces_what_is_no_plugin_but_keeps_it() {
    let node = Node::new();
    node.write("loopback", b"#!/bin/sh\n");
    node.installed(|install| install.force = true);
    assert_eq!(node.read("loopback"), cnibox("ours"));
    node.uninstall();
    assert_eq!(node.read("loopback"), b"#!/bin/sh\n");
}

#[test]
fn a_directory_is_refused_even_with_force() {
    let node = Node::new();
    fs::create_dir_all(node.path("bridge")).unwrap();
    let (outcome, _) = node.install(|install| install.force = true);
    assert!(format!("{:#}", outcome.unwrap_err()).ends_with("/bridge: is a directory"));
    assert_eq!(node.listing(), ["bridge/"]);
}

#[test]
fn a_link_to_nothing_is_refused_unless_it_was_ours() {
    let node = Node::new();
    fs::create_dir(node.dir()).unwrap();
    symlink("cnibox", node.path("bridge")).unwrap();
    node.installed(|_| {});
    fs::remove_file(node.path("bridge")).unwrap();
    symlink("/nonexistent/x", node.path("bridge")).unwrap();
    let (outcome, _) = node.install(|_| {});
    assert!(format!("{:#}", outcome.unwrap_err()).contains("/bridge: is a link to nothing"));
}

#[test]
fn a_dry_run_changes_nothing_and_says_the_same() {
    let node = Node::new();
    let dry = node.installed(|install| install.dry_run = true);
    assert!(!node.dir().exists());
    node.write("bridge", &go_plugin("go"));
    let before = node.listing();
    let with_plugin = node.installed(|install| install.dry_run = true);
    assert_eq!(node.listing(), before);
    assert_ne!(dry, with_plugin);
    assert_eq!(node.installed(|_| {}), with_plugin);
    let installed = node.listing();
    uninstall(&node.dir(), &names(), true, &mut Vec::new()).unwrap();
    assert_eq!(node.listing(), installed);
}

#[test]
fn uninstall_leaves_alone_what_is_not_ours() {
    let node = Node::new();
    node.write("bridge", &go_plugin("old go"));
    node.installed(|_| {});
    // A package of the Go plugins was installed over us.
    fs::remove_file(node.path("bridge")).unwrap();
    node.write("bridge", &go_plugin("newer go"));
    let told = node.uninstall();
    assert!(told.contains("bridge (left alone: not cnibox's)"), "{told}");
    assert_eq!(node.read("bridge"), go_plugin("newer go"));
    assert_eq!(node.listing(), [".cnibox-replaced/", "bridge"]);
}

#[test]
fn a_directory_that_is_not_there_cannot_be_uninstalled() {
    assert!(uninstall(Path::new("/nonexistent"), &names(), false, &mut Vec::new()).is_err());
}
