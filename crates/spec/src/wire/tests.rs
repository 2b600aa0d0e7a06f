// SPDX-License-Identifier: Apache-2.0
//! Every shape printed and read back, against texts that the reference printed.

use super::*;
use crate::{Dns, Interface, IpConfig, Route, parse_cidr, parse_ip};

fn sample() -> CniResult {
    let mut second = Route::new(parse_cidr("fd00::/8").unwrap(), None);
    second.table = Some(0);
    second.mtu = 1400;
    CniResult {
        interfaces: vec![Interface {
            name: "eth0".into(),
            mac: "aa:bb:cc:dd:ee:ff".into(),
            mtu: 1500,
            sandbox: "/run/netns/<x>".into(),
            ..Interface::default()
        }],
        ips: vec![
            IpConfig {
                interface: Some(0),
                address: parse_cidr("10.1.2.3/24").unwrap(),
                gateway: Some(parse_ip("10.1.2.1").unwrap()),
            },
            IpConfig { interface: None, address: parse_cidr("fd00::2/64").unwrap(), gateway: None },
        ],
        routes: vec![
            Route::new(parse_cidr("0.0.0.0/0").unwrap(), Some(parse_ip("10.1.2.1").unwrap())),
            second,
        ],
        dns: Dns::default(),
    }
}

fn print(version: &str) -> String {
    print_result(CniVersion::parse(version).unwrap(), &sample()).unwrap()
}

#[test]
fn prints_1_1_alphabetically_without_empty_dns() {
    let compact: String = print("1.1.0").split_whitespace().collect();
    assert_eq!(
        compact,
        r#"{"cniVersion":"1.1.0","interfaces":[{"mac":"aa:bb:cc:dd:ee:ff","mtu":1500,"name":"eth0","sandbox":"/run/netns/\u003cx\u003e"}],"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0},{"address":"fd00::2/64"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"fd00::/8","mtu":1400,"table":0}]}"#
    );
}

#[test]
fn prints_0_4_with_families_and_dns() {
    let compact: String = print("0.4.0").split_whitespace().collect();
    assert_eq!(
        compact,
        r#"{"cniVersion":"0.4.0","interfaces":[{"name":"eth0","mac":"aa:bb:cc:dd:ee:ff","sandbox":"/run/netns/\u003cx\u003e"}],"ips":[{"version":"4","interface":0,"address":"10.1.2.3/24","gateway":"10.1.2.1"},{"version":"6","address":"fd00::2/64"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.1.2.1"},{"dst":"fd00::/8","mtu":1400,"table":0}],"dns":{}}"#
    );
}

#[test]
fn older_versions_leave_out_what_they_do_not_know() {
    let mut result = sample();
    result.interfaces[0].socket_path = "/s".into();
    result.interfaces[0].pci_id = "0000:00:01.0".into();
    result.dns = Dns { nameservers: vec!["10.1.2.1".into()], domain: "d".into(), ..Dns::default() };
    let compact = |version| -> String {
        print_result(version, &result).unwrap().split_whitespace().collect::<String>()
    };
    let modern = compact(CniVersion::V1_1_0);
    assert!(modern.contains(r#""dns":{"domain":"d","nameservers":["10.1.2.1"]},"interfaces":"#), "{modern}");
    assert!(modern.contains(r#""name":"eth0","pciID":"0000:00:01.0","sandbox":"#), "{modern}");
    assert!(modern.contains(r#"003e","socketPath":"/s"}],"ips":"#), "{modern}");
    let older = compact(CniVersion::V0_4_0);
    let interface = print("0.4.0").split_whitespace().collect::<String>();
    let interface = interface.split(r#","ips""#).next().unwrap();
    assert!(older.starts_with(interface), "{older}");
    assert!(older.ends_with(r#","dns":{"nameservers":["10.1.2.1"],"domain":"d"}}"#), "{older}");
}

#[test]
fn prints_0_2_with_routes_below_their_family() {
    assert_eq!(
        print("0.2.0"),
        "{\n    \"cniVersion\": \"0.2.0\",\n    \"ip4\": {\n        \"ip\": \"10.1.2.3/24\",\n        \"gateway\": \"10.1.2.1\",\n        \"routes\": [\n            {\n                \"dst\": \"0.0.0.0/0\",\n                \"gw\": \"10.1.2.1\"\n            }\n        ]\n    },\n    \"ip6\": {\n        \"ip\": \"fd00::2/64\",\n        \"routes\": [\n            {\n                \"dst\": \"fd00::/8\"\n            }\n        ]\n    },\n    \"dns\": {}\n}"
    );
}

#[test]
fn a_result_without_addresses_has_no_0_2_shape() {
    let error = print_result(CniVersion::V0_1_0, &CniResult::default()).unwrap_err();
    assert_eq!(error.to_string(), "cannot convert: no valid IP addresses");
    let passed_on = print_passed_on(CniVersion::V0_1_0, &CniResult::default());
    let compact: String = passed_on.split_whitespace().collect();
    assert_eq!(compact, r#"{"cniVersion":"0.1.0","dns":{}}"#);
}

#[test]
fn what_is_printed_reads_back() {
    for version in CniVersion::ALL {
        let text = print_result(*version, &sample()).unwrap();
        let back = parse_result(version.as_str(), &Json::parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(print_result(*version, &back).unwrap(), text, "{version}");
    }
}

#[test]
fn a_result_of_another_shape_is_refused_in_the_reference_words() {
    let json = Json::parse(br#"{"cniVersion":"0.4.0"}"#).unwrap();
    assert_eq!(
        parse_result("1.1.0", &json).unwrap_err().to_string(),
        r#"result type supports [1.0.0 1.1.0] but unmarshalled CNIVersion is "0.4.0""#
    );
    let empty = Json::parse(br#"{"cniVersion":""}"#).unwrap();
    assert!(parse_result("0.3.1", &empty).is_err());
    assert!(parse_result("", &empty).is_ok());
    assert_eq!(
        parse_result("9.9.9", &empty).unwrap_err().to_string(),
        r#"unsupported CNI result version "9.9.9""#
    );
}
