// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;

use super::*;

type Memory = Index<Vec<Page>>;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nth(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()
}

/// A small generator, so that failures repeat.
struct Random(u64);
impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn says_what_a_map_says_through_random_changes() {
    let mut index = Memory::empty(0);
    let mut model: BTreeMap<IpAddr, String> = BTreeMap::new();
    let mut random = Random(42);
    for _ in 0..20_000 {
        let address = nth(random.below(9000) as u32);
        if let Some(owner) = model.remove(&address) {
            index.remove(&owner, address).unwrap();
        } else {
            let owner = format!("c{}", random.below(3000));
            index.insert(Some(&owner), address).unwrap();
            model.insert(address, owner);
        }
        if index.is_crowded() {
            index = index.grown().unwrap();
        }
        let from = nth(random.below(9000) as u32);
        let unused = (to_bits(from)..=to_bits(nth(8999)))
            .map(|bits| from_bits(bits, from).unwrap())
            .find(|ip| !model.contains_key(ip));
        assert_eq!(index.first_unused(from, nth(8999)), Some(unused));
    }
    for owner in (0..3000).map(|n| format!("c{n}")) {
        let mut found = index.addresses_of(&owner).unwrap();
        found.sort();
        let held: Vec<_> = model.iter().filter(|(_, o)| **o == owner).map(|(ip, _)| *ip).collect();
        assert_eq!(found, held, "{owner}");
    }
}

#[test]
fn long_runs_end_where_the_run_ends() {
    let mut index = Memory::empty(60_000);
    (1..60_000).for_each(|n| index.insert(None, nth(n)).unwrap());
    assert_eq!(index.first_unused(nth(1), nth(65_534)), Some(Some(nth(60_000))));
    assert_eq!(index.first_unused(nth(1), nth(59_999)), Some(None));
    assert_eq!(index.first_unused(nth(0), nth(59_999)), Some(Some(nth(0))));
}

#[test]
fn the_ends_of_a_family_are_no_trap() {
    let mut index = Memory::empty(0);
    for last in ["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "255.255.255.255"] {
        index.insert(Some("x"), ip(last)).unwrap();
        assert_eq!(index.first_unused(ip(last), ip(last)), Some(None));
    }
    assert_eq!(index.first_unused(ip("::"), ip("::1")), Some(Some(ip("::"))));
}

#[test]
fn equal_bits_of_two_families_are_two_addresses() {
    let mut index = Memory::empty(0);
    index.insert(Some("x"), ip("0.0.0.1")).unwrap();
    assert_eq!(index.first_unused(ip("::1"), ip("::2")), Some(Some(ip("::1"))));
    assert_eq!(index.first_unused(ip("0.0.0.1"), ip("0.0.0.2")), Some(Some(ip("0.0.0.2"))));
}

#[test]
fn only_a_sealed_index_with_the_same_stamp_is_believed() {
    let stamp = [7; 56];
    let mut index = Memory::empty(0);
    index.insert(Some("x"), nth(1)).unwrap();
    assert!(Index::open(index.pages.clone(), &stamp).is_none());
    index.seal(&stamp).unwrap();
    assert!(Index::open(index.pages.clone(), &stamp).is_some());
    assert!(Index::open(index.pages.clone(), &[8; 56]).is_none());
    index.pages[0][9] ^= 1;
    assert!(Index::open(index.pages, &stamp).is_none());
}

#[test]
fn damage_is_seen() {
    let mut index = Memory::empty(0);
    index.insert(Some("x"), nth(1)).unwrap();
    for page in index.pages.iter_mut().skip(1) {
        page[3] ^= 0x40;
    }
    assert_eq!(index.addresses_of("x"), None);
    assert_eq!(index.insert(Some("y"), nth(2)), None);
}
