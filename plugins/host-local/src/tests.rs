// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cnibox_spec::{Attachment, Cidr, Code, LiveAttachment, NetAddr, parse_cidr, parse_ip};
use cnibox_sys::PrivateDir;
use nix::unistd::mkdtemp;

use super::*;

use crate::range::{RangeSet, RangeShape};

mod indexed;

/// A state directory of its own, and where its index is.
struct Host {
    dir: PathBuf,
    terms: Terms,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Host {
    fn new() -> Self {
        let dir = mkdtemp(&std::env::temp_dir().join("host-local-XXXXXX")).unwrap();
        let terms = Terms { index: PrivateDir::new(dir.join("index")), patience: Duration::from_millis(200) };
        Self { dir, terms }
    }

    /// One on which no index can be kept.
    fn without_index() -> Self {
        let mut host = Self::new();
        fs::write(host.dir.join("index"), "").unwrap();
        host.terms.index = PrivateDir::new(host.dir.join("index"));
        host
    }

    fn state(&self) -> PathBuf {
        self.dir.join("networks/n")
    }

    fn config(&self, subnets: &[&str]) -> Config {
        let shape = |subnet: &&str| RangeShape { subnet: Some(cidr(subnet)), ..RangeShape::default() };
        Config {
            sets: subnets.iter().map(|subnet| RangeSet::new(&[shape(subnet)]).unwrap()).collect(),
            requested: Vec::new(),
            routes: Vec::new(),
            state: self.state(),
            resolv_conf: None,
            exclude: Vec::new(),
            sticky: false,
            reclaim_on_boot: false,
        }
    }

    fn add(&self, config: &Config, container: &str) -> Result<String, Failure> {
        let result = add(config, &owner(container), &self.terms, &|_| false)?;
        let ips: Vec<_> = result.ips.iter().map(|ip| ip.address.ip().to_string()).collect();
        Ok(ips.join(" "))
    }

    fn del(&self, config: &Config, container: &str) {
        del(config, &owner(container), &self.terms).unwrap();
    }

    fn check(&self, config: &Config, container: &str) -> Result<(), Failure> {
        check(config, &owner(container), &self.terms)
    }

    fn retain(&self, valid: &[(&str, &str)]) {
        self.retain_beside(valid, &[]);
    }

    /// GC while somebody has the addresses `in_use`.
    fn retain_beside(&self, valid: &[(&str, &str)], in_use: &[&str]) {
        let valid: Vec<_> = valid
            .iter()
            .map(|(id, ifname)| LiveAttachment {
                container_id: (*id).to_owned(),
                ifname: (*ifname).to_owned(),
            })
            .collect();
        let mut store = Store::ensure(&self.state(), &self.terms).unwrap();
        let spare = |stale: &mut Vec<(IpAddr, Owner)>| {
            stale.retain(|(ip, _)| !in_use.contains(&ip.to_string().as_str()));
            Ok(())
        };
        retain(&mut store, &valid, spare).unwrap();
    }

    /// Writes a file as somebody else would, who knows nothing of an index.
    fn put(&self, name: &str, content: &str) {
        fs::create_dir_all(self.state()).unwrap();
        fs::write(self.state().join(name), content).unwrap();
    }

    fn files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.state()).unwrap().map(Result::unwrap);
        entries
            .filter(|entry| entry.file_name() != "lock")
            .map(|entry| {
                let content = fs::read(entry.path()).unwrap_or_default();
                (entry.file_name().into_string().unwrap(), String::from_utf8_lossy(&content).into_owned())
            })
            .collect()
    }

    fn index_is_believed(&self) -> bool {
        Store::ensure(&self.state(), &self.terms).unwrap().believes_index()
    }
}

fn cidr(text: &str) -> Cidr {
    Cidr(parse_cidr(text).unwrap())
}

fn owner(container: &str) -> Owner {
    Owner::of(&Attachment::new("net", container, "eth0").unwrap())
}

fn msg(failure: &Failure) -> &str {
    &failure.object().msg
}

fn both(test: impl Fn(&Host)) {
    test(&Host::new());
    test(&Host::without_index());
}

#[test]
fn the_files_are_the_references() {
    both(|host| {
        let config = host.config(&["10.22.0.0/16", "fd00:22::/64"]);
        assert_eq!(host.add(&config, "cont1").unwrap(), "10.22.0.2 fd00:22::2");
        let expected = [
            ("10.22.0.2", "cont1\r\neth0"),
            ("fd00:22::2", "cont1\r\neth0"),
            ("last_reserved_ip.0", "10.22.0.2"),
            ("last_reserved_ip.1", "fd00:22::2"),
        ];
        let expected = expected.map(|(name, content)| (name.to_owned(), content.to_owned()));
        assert_eq!(host.files(), BTreeMap::from(expected));
        host.check(&config, "cont1").unwrap();
        host.del(&config, "cont1");
        host.del(&config, "cont1");
        assert_eq!(host.files().len(), 2);
        assert_eq!(
            msg(&host.check(&config, "cont1").unwrap_err()),
            "host-local: Failed to find address added by container cont1"
        );
    });
}

#[test]
fn addresses_go_round() {
    both(|host| {
        let mut config = host.config(&[]);
        let shape = RangeShape {
            subnet: Some(cidr("10.9.0.0/24")),
            start: NetAddr(parse_ip("10.9.0.3").ok()),
            end: NetAddr(parse_ip("10.9.0.5").ok()),
            ..RangeShape::default()
        };
        config.sets = vec![RangeSet::new(&[shape]).unwrap()];
        for (container, ip) in [("a", "10.9.0.3"), ("b", "10.9.0.4"), ("c", "10.9.0.5")] {
            assert_eq!(host.add(&config, container).unwrap(), ip);
        }
        let full = host.add(&config, "d").unwrap_err();
        assert_eq!(
            msg(&full),
            "failed to allocate for range 0: no IP addresses available in range set: 10.9.0.3-10.9.0.5"
        );
        let status = status::status(&config, &host.terms).unwrap_err();
        assert_eq!(status.object().code, Code::PLUGIN_NOT_AVAILABLE);
        assert_eq!(msg(&status), "no IP addresses available in range set: 10.9.0.3-10.9.0.5");
        host.del(&config, "a");
        status::status(&config, &host.terms).unwrap();
        assert_eq!(host.add(&config, "d").unwrap(), "10.9.0.3");
    });
}

#[test]
fn a_contested_address_names_its_owner() {
    let host = Host::new();
    let mut config = host.config(&["10.22.0.0/24"]);
    host.put("10.22.0.9", "cont1");
    let error = host.add(&config, "cont1").unwrap_err();
    assert_eq!(
        msg(&error),
        "failed to allocate for range 0: 10.22.0.9 has been allocated to cont1, duplicate allocation is not allowed"
    );
    config.requested = vec![parse_ip("10.22.0.77").unwrap()];
    assert_eq!(host.add(&config, "c1").unwrap(), "10.22.0.77");
    let error = host.add(&config, "c2").unwrap_err();
    assert_eq!(
        msg(&error),
        "failed to allocate for range 0: requested IP address 10.22.0.77 is not available in range set 10.22.0.1-10.22.0.254"
    );
    assert_eq!(error.object().details, "10.22.0.77 belongs to container c1 interface eth0");
    config.requested = vec![parse_ip("10.22.0.1").unwrap()];
    let error = host.add(&config, "c2").unwrap_err();
    assert_eq!(msg(&error), "failed to allocate for range 0: requested ip 10.22.0.1 is subnet's gateway");
}

#[test]
fn a_failed_add_takes_back_its_own_and_nothing_older() {
    both(|host| {
        let mut config = host.config(&["10.1.0.0/24", "10.2.0.0/24"]);
        host.put("10.3.0.9", "c1\r\neth0");
        config.requested = ["10.1.0.50", "10.8.0.7", "10.8.0.9"].map(|ip| parse_ip(ip).unwrap()).to_vec();
        let error = host.add(&config, "c1").unwrap_err();
        assert_eq!(msg(&error), "failed to allocate all requested IPs: 10.8.0.7 10.8.0.9");
        let left: Vec<_> = host.files().into_keys().collect();
        assert_eq!(left, ["10.3.0.9", "last_reserved_ip.0", "last_reserved_ip.1"]);
        host.put("10.2.0.50", "other\r\neth0");
        config.requested = ["10.1.0.50", "10.2.0.50"].map(|ip| parse_ip(ip).unwrap()).to_vec();
        host.add(&config, "c1").unwrap_err();
        assert!(!host.files().contains_key("10.1.0.50"));
    });
}

#[test]
fn del_and_check_make_nothing() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    host.del(&config, "c1");
    assert_eq!(
        msg(&host.check(&config, "c1").unwrap_err()),
        "host-local: Failed to find address added by container c1"
    );
    status::status(&config, &host.terms).unwrap();
    assert_eq!(fs::read_dir(&host.dir).unwrap().count(), 0);
}

#[test]
fn a_bare_record_counts_when_there_is_no_exact_one() {
    both(|host| {
        let config = host.config(&["10.22.0.0/24"]);
        host.put("10.22.0.7", "c1\n");
        host.put("10.22.0.8", "c1\r\neth0");
        host.check(&config, "c1").unwrap();
        host.del(&config, "c1");
        assert_eq!(host.files().into_keys().collect::<Vec<_>>(), ["10.22.0.7"]);
        host.check(&config, "c1").unwrap();
        host.del(&config, "c1");
        assert!(host.files().is_empty());
    });
}

#[test]
fn what_a_crash_left_is_replaced_and_notes_are_not() {
    both(|host| {
        let config = host.config(&["10.22.0.0/29"]);
        host.put("10.22.0.2", "");
        host.put("10.22.0.3", "for the printer");
        host.put("10.22.0.4", "\0\0\0\0\0\0\0");
        symlink("/nowhere", host.state().join("10.22.0.5")).unwrap();
        assert_eq!(host.add(&config, "a").unwrap(), "10.22.0.2");
        assert_eq!(host.add(&config, "b").unwrap(), "10.22.0.4");
        assert_eq!(host.add(&config, "c").unwrap(), "10.22.0.6");
        host.add(&config, "d").unwrap_err();
        assert_eq!(host.files()["10.22.0.4"], "b\r\neth0");
        assert_eq!(host.files()["10.22.0.3"], "for the printer");
    });
}

#[test]
fn reservations_in_odd_places_are_found_as_by_the_reference() {
    both(|host| {
        let config = host.config(&["10.22.0.0/24"]);
        host.add(&config, "warm").unwrap();
        host.put("odd", "c1\r\neth0");
        fs::create_dir(host.state().join("sub")).unwrap();
        host.put("sub/10.22.0.9", "c2\r\neth0");
        host.check(&config, "c1").unwrap();
        host.check(&config, "c2").unwrap();
        host.add(&config, "c3").unwrap();
        host.put("sub/10.22.0.8", "c4\r\neth0");
        host.check(&config, "c4").unwrap();
        ["c1", "c2", "c4"].iter().for_each(|container| host.del(&config, container));
        assert!(!host.files().contains_key("odd"));
        assert_eq!(fs::read_dir(host.state().join("sub")).unwrap().count(), 0);
    });
}

#[test]
fn symbolic_links_in_the_state_are_not_followed() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    let victim = host.dir.join("victim");
    fs::write(&victim, "c1\r\neth0").unwrap();
    fs::create_dir_all(host.state()).unwrap();
    symlink(&victim, host.state().join("10.22.0.2")).unwrap();
    symlink(&victim, host.state().join("last_reserved_ip.0")).unwrap();
    assert_eq!(
        msg(&host.add(&config, "c1").unwrap_err()),
        format!(
            "failed to allocate for range 0: open {}/last_reserved_ip.0: too many levels of symbolic links",
            host.state().display()
        )
    );
    assert!(host.check(&config, "c1").is_err());
    host.del(&config, "c1");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "c1\r\neth0");
    assert_eq!(host.files().len(), 2, "nothing was reserved");

    let linked = Host::new();
    fs::create_dir_all(linked.state().parent().unwrap()).unwrap();
    symlink(&linked.dir, linked.state()).unwrap();
    let error = linked.add(&linked.config(&["10.22.0.0/24"]), "c1").unwrap_err();
    assert_eq!(msg(&error), format!("open {}: not a directory", linked.state().display()));
}

#[test]
fn gc_keeps_the_living() {
    both(|host| {
        let config = host.config(&["10.22.0.0/24"]);
        host.add(&config, "live").unwrap();
        host.add(&config, "dead").unwrap();
        host.put("10.22.0.50", "live");
        host.put("10.22.0.51", "gone");
        host.put("10.22.0.52", "live\r\neth1");
        host.put("10.22.0.53", "for the printer");
        host.put("10.22.0.54", "");
        host.put("readme", "dead\r\neth0");
        host.retain(&[("live", "eth0")]);
        let left: Vec<_> = host.files().into_keys().collect();
        assert_eq!(left, ["10.22.0.2", "10.22.0.50", "10.22.0.53", "last_reserved_ip.0", "readme"]);
        host.retain_beside(&[], &["10.22.0.2", "10.22.0.3"]);
        let left: Vec<_> = host.files().into_keys().collect();
        assert_eq!(left, ["10.22.0.2", "10.22.0.53", "last_reserved_ip.0", "readme"]);
        host.retain(&[]);
        let left: Vec<_> = host.files().into_keys().collect();
        assert_eq!(left, ["10.22.0.53", "last_reserved_ip.0", "readme"]);
        assert!(host.state().join("lock").exists());
    });
}

#[test]
fn excluded_addresses_are_not_handed_out() {
    both(|host| {
        let mut config = host.config(&["10.22.0.0/28"]);
        config.exclude =
            serde_json::from_str(r#"["10.22.0.2", "10.22.0.4/30", "10.22.0.12/30", "fd00::/8"]"#).unwrap();
        let got: Vec<_> = ["a", "b", "c", "d", "e"].map(|id| host.add(&config, id).unwrap()).to_vec();
        assert_eq!(got, ["10.22.0.3", "10.22.0.8", "10.22.0.9", "10.22.0.10", "10.22.0.11"]);
        assert!(status::status(&config, &host.terms).is_err());
        config.requested = vec![parse_ip("10.22.0.5").unwrap()];
        assert_eq!(
            msg(&host.add(&config, "f").unwrap_err()),
            "failed to allocate for range 0: requested ip 10.22.0.5 is excluded from allocation"
        );
        host.del(&config, "b");
        config.requested = Vec::new();
        assert_eq!(host.add(&config, "f").unwrap(), "10.22.0.8");
    });
}

#[test]
fn sticky_attachments_get_their_last_address() {
    both(|host| {
        let mut config = host.config(&["10.22.0.0/24", "fd00::/64"]);
        config.sticky = true;
        assert_eq!(host.add(&config, "a").unwrap(), "10.22.0.2 fd00::2");
        host.add(&config, "b").unwrap();
        host.del(&config, "a");
        assert_eq!(host.add(&config, "a").unwrap(), "10.22.0.2 fd00::2");
        host.del(&config, "a");
        host.put("10.22.0.2", "thief\r\neth0");
        assert_eq!(host.add(&config, "a").unwrap(), "10.22.0.3 fd00::2".replace("0.3", "0.4"));
        host.del(&config, "a");
        config.sticky = false;
        assert_ne!(host.add(&config, "a").unwrap(), "10.22.0.4 fd00::2");
    });
}

/// As the reference finds it: by its content, whatever it is called.
#[test]
fn check_leaves_a_file_of_another_name_for_del() {
    both(|host| {
        let config = host.config(&["10.22.0.0/24"]);
        host.put("copy", "c1\r\neth0");
        host.check(&config, "c1").unwrap();
        host.del(&config, "c1");
        assert!(!host.files().contains_key("copy"));
    });
}

#[test]
fn what_this_boot_made_is_not_reclaimed() {
    both(|host| {
        let mut config = host.config(&["10.22.0.0/24"]);
        config.reclaim_on_boot = true;
        host.put("10.22.0.9", "first\r\neth0");
        host.add(&config, "a").unwrap();
        assert!(host.files().contains_key("10.22.0.9"), "without a note nothing is stale");
        host.put(boot::FILE, "boot=another\n");
        host.add(&config, "b").unwrap();
        assert!(host.files().contains_key("10.22.0.9"), "made during this boot");
        assert_eq!(host.files()[boot::FILE], format!("boot={}\n", boot::id()));
    });
}

#[test]
fn a_lock_that_is_held_ends_in_try_again() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    let held = Store::ensure(&host.state(), &host.terms).unwrap();
    let error = host.add(&config, "a").unwrap_err();
    assert_eq!(error.object().code, Code::TRY_AGAIN_LATER);
    assert_eq!(
        msg(&error),
        format!("lock {}/lock is held by another process for more than 0 seconds", host.state().display())
    );
    drop(held);
    host.add(&config, "a").unwrap();
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_given_back() {
    let mut host = Host::new();
    host.terms.patience = Duration::from_secs(20);
    let config = host.config(&["10.22.0.0/24"]);
    let held = Store::ensure(&host.state(), &host.terms).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| host.add(&config, "a").unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.join().unwrap(), "10.22.0.2");
    });
}

#[test]
fn states_that_cannot_be_made_are_told_in_the_reference_words() {
    let host = Host::new();
    let mut config = host.config(&["10.22.0.0/24"]);
    fs::write(host.dir.join("file"), "").unwrap();
    config.state = host.dir.join("file/networks/n");
    let error = host.add(&config, "a").unwrap_err();
    let file = host.dir.join("file");
    assert_eq!(error.object().code, Code::IO_FAILURE);
    assert_eq!(msg(&error), format!("mkdir {}: not a directory", file.display()));
    let error = status::status(&config, &host.terms).unwrap_err();
    assert_eq!(error.object().code, Code::PLUGIN_NOT_AVAILABLE);
}

#[test]
fn nothing_but_the_reference_files_is_left_beside_reservations() {
    let host = Host::new();
    let config = host.config(&["10.22.0.0/24"]);
    host.add(&config, "a").unwrap();
    assert_eq!(host.files().into_keys().collect::<Vec<_>>(), ["10.22.0.2", "last_reserved_ip.0"]);
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(Path::new(&host.state()).join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode("10.22.0.2"), mode("last_reserved_ip.0"), mode("lock") & 0o700), (0o600, 0o600, 0o700));
}
