// SPDX-License-Identifier: Apache-2.0
//! The configuration: which of four sources the addresses come from.
//!
//! The configured addresses and those of `CNI_ARGS` count together; `args.cni.ips` replaces both, and
//! `runtimeConfig.ips` replaces everything. What replaces has no gateways.

use cnibox_harness::Input;
use cnibox_spec::{
    CniResult, CniVersion, Code, Dns, IpConfig, Json, NetAddr, Route, VersionNumber, decode, load_args,
    parse_cidr, parse_ip, unmapped,
};
use cnibox_sys::Failure;
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Default, Deserialize)]
#[serde(rename = "Net", default)]
struct Shape {
    ipam: Option<IpamShape>,
    #[serde(rename = "runtimeConfig")]
    runtime: RuntimeShape,
    args: ArgsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "main.IPAMConfig", default)]
struct IpamShape {
    #[serde(rename = "type")]
    _plugin: String,
    addresses: AddressList,
    routes: RouteList,
    dns: Dns,
}

#[derive(Default, Deserialize)]
#[serde(rename = "[]main.Address")]
struct AddressList(Vec<AddressShape>);

#[derive(Default, Deserialize)]
#[serde(rename = "[]*types.Route")]
struct RouteList(Vec<Route>);

#[derive(Default, Deserialize)]
#[serde(rename = "main.Address", default)]
struct AddressShape {
    address: String,
    /// The reference has a field of this name for itself, so that this key is no address in another case.
    #[serde(rename = "Address")]
    _parsed: IgnoredAny,
    gateway: NetAddr,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { A *main.IPAMArgs \"json:\\\"cni\\\"\" }", default)]
struct ArgsShape {
    cni: IpsShape,
}

#[derive(Default, Deserialize)]
#[serde(rename = "struct { IPs []string \"json:\\\"ips,omitempty\\\"\" }", default)]
struct RuntimeShape {
    ips: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename = "main.IPAMArgs", default)]
struct IpsShape {
    ips: Vec<String>,
}

/// Checks the configuration together with the value of `CNI_ARGS`, and answers with what ADD gives.
///
/// # Errors
/// What is wrong with it; sources are looked at in the order of their precedence, the weakest first.
pub(crate) fn load(input: &Input<'_>, args: &str) -> Result<CniResult, Failure> {
    parse(&input.conf.json, &input.conf.version_text, args)
}

fn parse(json: &Json, version: &str, args: &str) -> Result<CniResult, Failure> {
    let shape: Shape = decode(json)?;
    let ipam = shape.ipam.ok_or_else(|| Failure::invalid_config("IPAM config missing 'ipam' key"))?;
    let from_args = from_args(args)?;
    // A weaker source is still checked by the reference, except for the configured addresses.
    let from_conf = from_runtime(&shape.args.cni.ips)?;
    let from_runtime = from_runtime(&shape.runtime.ips)?;
    let ips = match (from_runtime.is_empty(), from_conf.is_empty()) {
        (false, _) => from_runtime,
        (true, false) => from_conf,
        (true, true) => configured(&ipam.addresses.0)?.into_iter().chain(from_args).collect(),
    };
    check_version(version, &ips)?;
    Ok(CniResult { ips, routes: ipam.routes.0, dns: ipam.dns, ..CniResult::default() })
}

/// An address with its prefix length, whose host part is kept; without a gateway.
fn wanted(text: &str, refused: impl FnOnce(&str) -> Failure) -> Result<IpConfig, Failure> {
    let address = parse_cidr(text).map(unmapped).map_err(|_| refused(text))?;
    Ok(IpConfig { interface: None, address, gateway: None })
}

fn configured(shapes: &[AddressShape]) -> Result<Vec<IpConfig>, Failure> {
    let with_gateway = |shape: &AddressShape| {
        let refused = |text: &str| {
            Failure::invalid_config(format!(
                "the 'address' field is expected to be in CIDR notation, got: '{text}'"
            ))
        };
        let address = wanted(&shape.address, refused)?;
        Ok(IpConfig { gateway: shape.gateway.0, ..address })
    };
    shapes.iter().map(with_gateway).collect()
}

fn from_runtime(ips: &[String]) -> Result<Vec<IpConfig>, Failure> {
    let refused = |text: &str| {
        Failure::invalid_config(format!("an entry in the 'ips' field is NOT in CIDR notation, got: '{text}'"))
    };
    ips.iter().map(|text| wanted(text, refused)).collect()
}

/// `IP` and `GATEWAY`: lists with commas. A gateway belongs to every address of `IP` whose subnet it is in.
fn from_args(args: &str) -> Result<Vec<IpConfig>, Failure> {
    let (mut ips, mut gateways) = (String::new(), String::new());
    load_args(args, |key, value| {
        let list = match key {
            "IP" => &mut ips,
            "GATEWAY" => &mut gateways,
            _ => return None,
        };
        value.clone_into(list);
        Some(Ok(()))
    })?;
    let failed = |text: String| Failure::new(Code::INVALID_ENVIRONMENT, text);
    let refused =
        |text: &str| failed(format!("the 'ip' field is expected to be in CIDR notation, got: '{text}'"));
    let address = |item: &str| wanted(item.trim(), refused);
    let mut addresses = items(&ips).map(address).collect::<Result<Vec<_>, _>>()?;
    for item in items(&gateways) {
        let gateway =
            parse_ip(item.trim()).map_err(|_| failed(format!("invalid gateway address: {item}")))?;
        for wanted in addresses.iter_mut().filter(|wanted| wanted.address.contains(gateway)) {
            wanted.gateway = Some(gateway);
        }
    }
    Ok(addresses)
}

/// Nothing for an empty list, which is not the same as one empty item.
fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(move |_| !list.is_empty())
}

/// Results before 0.3.0 have room for one address of each family.
fn check_version(version: &str, addresses: &[IpConfig]) -> Result<(), Failure> {
    let of_family = |v4: bool| addresses.iter().filter(|wanted| wanted.address.is_ipv4() == v4).count();
    let old =
        VersionNumber::parse(version).is_ok_and(|number| number < VersionNumber::of(CniVersion::V0_3_0));
    if old && (of_family(true) > 1 || of_family(false) > 1) {
        return Err(Failure::invalid_config(format!(
            "CNI version {version} does not support more than 1 address per family"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(ipam: &str, rest: &str, args: &str) -> Result<Vec<String>, String> {
        let json = format!(r#"{{"cniVersion":"1.0.0","name":"n","ipam":{ipam}{rest}}}"#);
        let config = parse(&Json::parse(json.as_bytes()).unwrap(), "1.0.0", args);
        let text = |wanted: &IpConfig| match wanted.gateway {
            Some(gateway) => format!("{} {gateway}", wanted.address),
            None => wanted.address.to_string(),
        };
        config.map(|config| config.ips.iter().map(text).collect()).map_err(|error| error.to_string())
    }

    const ONE: &str = r#"{"addresses":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]}"#;

    #[test]
    fn addresses_of_the_environment_come_after_the_configured_ones() {
        let args = "IP=10.2.0.5/24, fd00::5/64;GATEWAY=fd00::1, 10.2.0.1,10.1.0.9";
        let got = load(ONE, "", args).unwrap();
        assert_eq!(got, ["10.1.0.5/24 10.1.0.1", "10.2.0.5/24 10.2.0.1", "fd00::5/64 fd00::1"]);
    }

    #[test]
    fn the_runtimes_addresses_replace_all_others_and_have_no_gateway() {
        let args = r#","args":{"cni":{"ips":["10.3.0.5/24"]}}"#;
        assert_eq!(load(ONE, args, "IP=10.2.0.5/24").unwrap(), ["10.3.0.5/24"]);
        let both = format!(r#"{args},"runtimeConfig":{{"ips":["10.4.0.5/24","10.5.0.5/24"]}}"#);
        assert_eq!(load(ONE, &both, "").unwrap(), ["10.4.0.5/24", "10.5.0.5/24"]);
        assert_eq!(load("{}", "", "IgnoreUnknown=1;K8S_POD_NAME=x").unwrap(), [""; 0]);
    }

    #[test]
    fn errors_have_the_references_texts() {
        let bad = r#"{"addresses":[{"address":"10.1.0.5"}]}"#;
        let expect = [
            (load(bad, "", ""), "the 'address' field is expected to be in CIDR notation, got: '10.1.0.5'"),
            (
                load(ONE, "", "IP=10.2.0.5"),
                "the 'ip' field is expected to be in CIDR notation, got: '10.2.0.5'",
            ),
            (load(ONE, "", "GATEWAY=x"), "invalid gateway address: x"),
            (load(ONE, "", "MAC=x"), r#"ARGS: unknown args ["MAC=x"]"#),
            (
                load(ONE, r#","runtimeConfig":{"ips":["10.4.0.5"]}"#, ""),
                "an entry in the 'ips' field is NOT in CIDR notation, got: '10.4.0.5'",
            ),
            (load("null", "", ""), "IPAM config missing 'ipam' key"),
        ];
        for (got, text) in expect {
            assert_eq!(got.unwrap_err(), text);
        }
    }

    #[test]
    fn old_versions_have_one_address_of_each_family() {
        let json = r#"{"ipam":{"addresses":[{"address":"10.1.0.5/24"},{"address":"fd00::5/64"},{"address":"10.1.0.6/24"}]}}"#;
        let json = Json::parse(json.as_bytes()).unwrap();
        let error = parse(&json, "0.2.0", "").unwrap_err();
        assert_eq!(error.to_string(), "CNI version 0.2.0 does not support more than 1 address per family");
        assert!(parse(&json, "0.3.0", "").is_ok());
    }
}
