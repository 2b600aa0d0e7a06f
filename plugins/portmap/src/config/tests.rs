// SPDX-License-Identifier: Apache-2.0
//! Configurations, good and bad.

use cnibox_spec::{Json, decode, parse_result};

use super::*;

fn load(text: &str) -> Result<Config, Failure> {
    Ok(decode::<Shape>(&Json::parse(text.as_bytes()).unwrap())?.check(None, false)?)
}

fn load_for_del(text: &str) -> Result<Config, Failure> {
    Ok(decode::<Shape>(&Json::parse(text.as_bytes()).unwrap())?.check(None, true)?)
}

fn with_mapping(entry: &str) -> String {
    format!(r#"{{"runtimeConfig":{{"portMappings":[{entry}]}}}}"#)
}

#[test]
fn defaults_are_the_references() {
    let config = load("{}").unwrap();
    assert!(config.snat && !config.masq_all && config.backend.is_none() && config.mappings.is_empty());
    assert_eq!(config.marking, Marking::Bit(0x2000));
    assert_eq!(load(r#"{"markMasqBit":5}"#).unwrap().marking, Marking::Bit(0x20));
    assert_eq!(load(r#"{"markMasqBit":31}"#).unwrap().marking, Marking::Bit(0x8000_0000));
}

#[test]
fn wrong_configurations_get_the_references_texts() {
    let mapping = |entry: &str| with_mapping(entry);
    let cases = [
        (r#"{"snat":1}"#.to_owned(), "json: cannot unmarshal number into Go struct field PortMapConf.snat of type bool"),
        (mapping(r#"{"hostPort":"1"}"#), "json: cannot unmarshal string into Go struct field PortMapEntry.runtimeConfig.portMappings.hostPort of type int"),
        (r#"{"markMasqBit":3,"externalSetMarkChain":"X"}"#.to_owned(), "Cannot specify externalSetMarkChain and markMasqBit"),
        (r#"{"markMasqBit":32}"#.to_owned(), "MasqMarkBit must be between 0 and 31"),
        (r#"{"markMasqBit":-1}"#.to_owned(), "MasqMarkBit must be between 0 and 31"),
        (r#"{"backend":"foo"}"#.to_owned(), r#"unrecognized backend "foo""#),
        (r#"{"backend":"nftables","externalSetMarkChain":"X","conditionsV4":["-s","1.2.3.4"],"conditionsV6":["!","-s","::1"]}"#.to_owned(),
         "nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain conditionsV4 conditionsV6]"),
        (r#"{"backend":"iptables","conditionsV4":["ip","saddr","1.2.3.4"],"conditionsV6":["ip6","saddr","::1"]}"#.to_owned(),
         "iptables backend was requested but configuration contains nftables-specific options [conditionsV4 conditionsV6]"),
        (r#"{"backend":"foo","externalSetMarkChain":"X"}"#.to_owned(),
         "foo backend was requested but configuration contains iptables-specific options [externalSetMarkChain]"),
        (mapping(r#"{"protocol":"tcp"}"#), "Invalid container port number: 0"),
        (mapping(r#"{"containerPort":80,"protocol":"tcp"}"#), "Invalid host port number: 0"),
        (mapping(r#"{"containerPort":80,"hostPort":70000,"protocol":"tcp"}"#), "Invalid host port number: 70000"),
        (mapping(r#"{"containerPort":70000,"hostPort":80,"protocol":"tcp"}"#), "Invalid container port number: 70000"),
        (mapping(r#"{"containerPort":80,"hostPort":80}"#), r#"invalid protocol "" for port mapping: must be tcp, udp or sctp"#),
        (mapping(r#"{"containerPort":80,"hostPort":80,"protocol":"icmp"}"#), r#"invalid protocol "icmp" for port mapping: must be tcp, udp or sctp"#),
        (mapping(r#"{"containerPort":80,"hostPort":80,"protocol":"tcp","hostIP":"x"}"#), r#"invalid hostIP "x" for port mapping"#),
        (r#"{"conditionsV4":["-s","1.2.3.4\n-A X"]}"#.to_owned(), r#"invalid condition "1.2.3.4\n-A X""#),
    ];
    for (text, message) in cases {
        assert_eq!(load(&text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn only_undecodable_configurations_have_the_code_of_undecodable_ones() {
    assert_eq!(load(r#"{"snat":1}"#).unwrap_err().object().code, Code::DECODING_FAILURE);
    assert_eq!(load(r#"{"backend":"foo"}"#).unwrap_err().object().code, Code::INVALID_CONFIG);
}

#[test]
fn del_is_strict_only_where_the_reference_is() {
    let odd = with_mapping(r#"{"containerPort":80,"hostPort":70000,"protocol":"x","hostIP":"y"}"#);
    assert!(load_for_del(&odd).unwrap().mappings.is_empty());
    assert!(load_for_del(&with_mapping("{}")).is_err());
}

#[test]
fn a_chain_that_is_no_name_is_refused_where_it_would_be_written() {
    let entry = r#"{"containerPort":80,"hostPort":80,"protocol":"tcp"}"#;
    for chain in ["", "two words", "-x", "X\\n-A Y", &"x".repeat(29)] {
        let with = |more: &str| format!(r#"{{"externalSetMarkChain":"{chain}",{more}}}"#);
        let mapped = format!(r#""runtimeConfig":{{"portMappings":[{entry}]}}"#);
        let refusal = load(&with(&mapped)).unwrap_err().to_string();
        assert!(refusal.starts_with("invalid externalSetMarkChain"), "{chain}: {refusal}");
        let unused = [
            load_for_del(&with(&mapped)),
            load(&with(r#""runtimeConfig":{}"#)),
            load(&with(&format!(r#""snat":false,{mapped}"#))),
        ];
        for config in unused {
            assert_eq!(config.unwrap().marking, Marking::Chain(String::new()), "{chain}");
        }
    }
}

#[test]
fn protocols_are_taken_as_the_tool_takes_them() {
    let of = |text: &str| {
        let entry = format!(r#"{{"containerPort":80,"hostPort":80,"protocol":"{text}"}}"#);
        load(&with_mapping(&entry)).map(|config| config.mappings[0].protocol)
    };
    assert_eq!(of("TCP").unwrap(), Protocol::Tcp);
    assert_eq!(of("17").unwrap(), Protocol::Udp);
    assert_eq!(of("sctp").unwrap(), Protocol::Sctp);
    let udplite = load(&with_mapping(r#"{"containerPort":1,"hostPort":1,"protocol":"udplite"}"#)).unwrap();
    assert!(udplite.fits(Backend::Nftables).is_ok() && udplite.fits(Backend::Iptables).is_err());
}

#[test]
fn a_host_address_limits_the_family() {
    let of = |ip: &str| {
        let entry = format!(r#"{{"containerPort":80,"hostPort":80,"protocol":"tcp","hostIP":"{ip}"}}"#);
        load(&with_mapping(&entry)).unwrap().mappings.remove(0)
    };
    assert!(of("").applies_to(Family::Ipv4) && of("").applies_to(Family::Ipv6));
    assert!(of("0.0.0.0").applies_to(Family::Ipv4) && !of("0.0.0.0").applies_to(Family::Ipv6));
    assert_eq!((of("::").destination(), of("::1").destination()), (None, Some("::1".parse().unwrap())));
}

#[test]
fn addresses_are_the_containers_own() {
    let json = Json::parse(
        br#"{"cniVersion":"1.0.0","interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/x"},{"name":"eth1","sandbox":"/x"}],
            "ips":[{"interface":0,"address":"10.0.0.1/8"},{"interface":2,"address":"10.0.0.3/8"},
                   {"interface":1,"address":"10.0.0.2/8"},{"interface":9,"address":"fd00::2/64"},{"address":"fd00::3/64"}]}"#,
    );
    let result = parse_result("1.0.0", &json.unwrap()).unwrap();
    let found: Vec<_> = container_addresses(&result, "eth0").iter().map(ToString::to_string).collect();
    assert_eq!(found, ["10.0.0.2/8", "fd00::2/64"]);
}
