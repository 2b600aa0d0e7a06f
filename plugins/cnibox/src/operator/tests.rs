// SPDX-License-Identifier: Apache-2.0
use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Exit status, stdout and stderr of a command line.
fn say(line: &str) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        env: Env::default(),
        plugins: vec!["bridge", "loopback"],
        version: "v1.9.1+cnibox.0.1.0",
    };
    let status = run(&words(line), &mut console);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn help_is_printed_alone_and_on_request() {
    for line in ["", "help", "--help", "-h", "install --help", "add -h"] {
        let (status, out, err) = say(line);
        assert_eq!((status, err.as_str()), (0, ""), "{line}");
        assert!(out.starts_with("cnibox v1.9.1+cnibox.0.1.0\n"), "{line}");
    }
}

/// Nomad takes the first word that its version parser accepts, and that accepts a bare number, too.
#[test]
fn the_first_number_in_the_help_is_the_version() {
    let (_, out, _) = say("");
    let numeric = |word: &&str| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(out.split_whitespace().find(numeric), Some("v1.9.1+cnibox.0.1.0"));
}

#[test]
fn version_and_list_are_one_thing_per_line() {
    assert_eq!(say("--version").1, "cnibox v1.9.1+cnibox.0.1.0\n");
    assert_eq!(say("version").1, "cnibox v1.9.1+cnibox.0.1.0\n");
    assert_eq!(say("list").1, "bridge\nloopback\n");
}

#[test]
fn a_wrong_command_line_is_status_2_and_says_what_is_wrong() {
    for (line, wrong) in [
        ("frobnicate", "unknown command \"frobnicate\""),
        ("install", "an argument is missing"),
        ("install a b", "too many arguments"),
        ("install --sideways d", "unknown option \"--sideways\""),
        ("install --copy --symlink d", "only one of --symlink, --hardlink and --copy is possible"),
        ("uninstall --force d", "unknown option \"--force\""),
        ("add n", "an argument is missing"),
        ("add n ns --all", "unknown option \"--all\""),
        ("gc", "an argument is missing"),
    ] {
        let said = format!("cnibox: {wrong}; `cnibox help` shows what there is\n");
        assert_eq!(say(line), (2, String::new(), said), "{line}");
    }
}

#[test]
fn options_may_stand_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display();
    // What is no plugin is replaced by force alone.
    std::fs::write(dir.path().join("bridge"), "no plugin").unwrap();
    for line in [
        format!("install --hardlink {path} --buildkit --force --dry-run"),
        format!("install --dry-run --force --buildkit {path} --hardlink"),
    ] {
        let (status, out, err) = say(&line);
        assert_eq!((status, err.as_str()), (0, ""), "{line}");
        for entry in ["bridge", "buildkit-cni-loopback"] {
            assert!(out.contains(&format!("{path}/{entry} = cnibox (")), "{line}: {out}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{line}");
    }
    let (status, ..) = say(&format!("install {path} --dry-run"));
    assert_eq!(status, 1);
    for (line, keep, dry_run) in [
        ("n --all --dry-run", Keep::Nothing, true),
        ("--all n", Keep::Nothing, false),
        ("n ns", Keep::Live, false),
    ] {
        let given = words(line);
        assert_eq!(gc_words(&Words::new(&given)).unwrap(), ("n", keep, dry_run), "{line}");
    }
}

#[test]
fn what_fails_is_status_1_and_told_on_stderr() {
    let mut env = Env::default().with("NETCONFPATH", "/nonexistent");
    for line in ["add n /ns", "check n /ns", "del n /ns", "status n", "gc n"] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let plugins = Vec::new();
        let mut console = Console { out: &mut out, err: &mut err, env, plugins, version: "v" };
        assert_eq!(run(&words(line), &mut console), 1, "{line}");
        env = console.env;
        assert_eq!(
            String::from_utf8(err).unwrap(),
            "no net configurations found in /nonexistent\n",
            "{line}"
        );
        assert!(out.is_empty());
    }
}

#[test]
fn buildkits_names_are_extra() {
    assert_eq!(entry_names(&["a", "b"], false), ["a", "b"]);
    assert_eq!(entry_names(&["a", "b"], true), ["a", "b", "buildkit-cni-a", "buildkit-cni-b"]);
}

#[test]
fn a_result_is_printed_with_four_spaces() {
    let mut out = Vec::new();
    print_result(&Json::parse(br#"{"cniVersion":"1.0.0"}"#).unwrap(), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "{\n    \"cniVersion\": \"1.0.0\"\n}\n");
}
