// SPDX-License-Identifier: Apache-2.0
//! The index of a state directory: believed as long as nobody else changed anything.

use super::*;

#[test]
fn the_index_is_believed_until_somebody_else_changes_something() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/16"]);
    host.add(&config, "a").unwrap();
    assert!(host.index_is_believed());
    host.put("10.22.0.3", "go\r\neth0");
    assert!(!host.index_is_believed());
    assert_eq!(host.add(&config, "b").unwrap(), "10.22.0.4");
    assert!(host.index_is_believed());
    host.check(&config, "go").unwrap();
    fs::remove_file(host.state().join("10.22.0.3")).unwrap();
    assert!(!host.index_is_believed());
    assert!(host.check(&config, "go").is_err());
}

#[test]
fn an_index_that_lies_is_found_out() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    for id in ["a", "b", "c"] {
        host.add(&config, id).unwrap();
    }
    let index = fs::read_dir(host.terms.index.path()).unwrap().next().unwrap().unwrap().path();
    // Content that changes in place does not show in the directory's time.
    fs::write(host.state().join("10.22.0.3"), "z\r\neth0").unwrap();
    assert!(host.index_is_believed());
    assert!(host.check(&config, "b").is_err());
    host.check(&config, "z").unwrap();
    // Damage of any page but the header's is met on the way.
    let mut bytes = fs::read(&index).unwrap();
    bytes.iter_mut().skip(512).for_each(|byte| *byte ^= 0x55);
    fs::write(&index, bytes).unwrap();
    host.check(&config, "c").unwrap();
    assert_eq!(host.add(&config, "d").unwrap(), "10.22.0.5");
    fs::write(&index, "").unwrap();
    host.check(&config, "d").unwrap();
    fs::remove_file(&index).unwrap();
    host.del(&config, "d");
    assert!(host.check(&config, "d").is_err());
}

#[test]
fn an_index_in_a_directory_of_others_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    fs::create_dir(host.terms.index.path()).unwrap();
    fs::set_permissions(host.terms.index.path(), fs::Permissions::from_mode(0o777)).unwrap();
    host.add(&config, "a").unwrap();
    assert_eq!(fs::read_dir(host.terms.index.path()).unwrap().count(), 0);
}

#[test]
fn an_index_grows_with_the_network() {
    let host = Host::new();
    let config = host.config(&["10.0.0.0/16"]);
    for n in 0..3000 {
        host.add(&config, &format!("c{n}")).unwrap();
    }
    assert!(host.index_is_believed());
    for n in (0..3000).step_by(7) {
        host.check(&config, &format!("c{n}")).unwrap();
        host.del(&config, &format!("c{n}"));
        assert!(host.check(&config, &format!("c{n}")).is_err());
    }
    assert!(host.index_is_believed());
    let files: Vec<_> =
        fs::read_dir(host.terms.index.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

/// Indexes in use are the files' own business; what must not pile up is those of directories that are not there.
#[test]
fn a_directory_that_is_made_anew_has_one_index_and_one_that_is_gone_has_none() {
    let host = Host::new();
    let here = host.config(&["10.22.0.0/24"]);
    let elsewhere = Config { state: host.dir.join("100%/m"), ..here.clone() };
    let indexes = || host.terms.index.names().len();
    host.add(&here, "a").unwrap();
    host.add(&elsewhere, "a").unwrap();
    assert_eq!(indexes(), 2);
    for id in ["b", "c"] {
        fs::remove_dir_all(host.state()).unwrap();
        host.add(&here, id).unwrap();
        assert_eq!(indexes(), 2, "one that is made anew takes the place of the old one");
    }
    fs::remove_dir_all(&elsewhere.state).unwrap();
    host.add(&here, "d").unwrap();
    assert_eq!(indexes(), 2, "nothing is looked for as long as the own one is believed");
    host.retain(&[("d", "eth0")]);
    assert_eq!(indexes(), 1);
    assert!(host.index_is_believed());
}
