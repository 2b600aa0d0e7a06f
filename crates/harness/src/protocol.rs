// SPDX-License-Identifier: Apache-2.0
//! One plugin call, from the environment to the exit code.

use std::io::Read;

use cnibox_spec::{
    Attachment, CniResult, CniVersion, Code, ContainerId, ErrorObject, IfName, Json, NetnsPath, NetworkName,
    Verb, VersionNumber, print_error, print_passed_on, print_result, quoted_list,
};
use cnibox_sys::{Builtin, Env, Exit, Failure, Host, Sys};
use serde::Deserialize;

use crate::environment::{self, Command};
use crate::{AddArgs, CheckArgs, DelArgs, GcArgs, Input, NetConf, Plugin, Request, Role};

/// The version told to runtimes: the reference's level that we are compatible with, then ours as build metadata
/// (Nomad refuses a pre-release part, so there is none).
pub const BUILD_VERSION: &str = concat!("v1.9.1+cnibox.", env!("CARGO_PKG_VERSION"));

/// The most that is read from stdin, in bytes.
const STDIN_LIMIT: u64 = 2 << 20;

/// A plugin as it stands in a [`Registry`](cnibox_sys::Registry). Those that hand out addresses call no others.
#[must_use]
pub const fn builtin<P: Plugin>() -> Builtin {
    let asks_network = matches!(P::ROLE, Role::Ipam { asks_network: true });
    Builtin { name: P::NAME, entry: run::<P>, is_delegate: P::ROLE.is_ipam(), asks_network }
}

/// Runs a plugin in `host`. The generic part is thin: the protocol is compiled once.
pub fn run<P: Plugin>(host: &mut Host<'_>) -> Exit {
    let verbs = Verbs {
        name: P::NAME,
        versions: P::VERSIONS,
        role: P::ROLE,
        add: |input, args, sys| P::add(&request::<P, _>(input, args)?, sys),
        del: |input, args, sys| P::del(&request::<P, _>(input, args)?, sys),
        check: |input, args, sys| P::check(&request::<P, _>(input, args)?, sys),
        status: |input, sys| P::status(&request::<P, _>(input, ())?, sys),
        gc: |input, args, sys| P::gc(&request::<P, _>(input, args)?, sys),
    };
    serve(&verbs, host)
}

fn request<'a, P: Plugin, A>(input: &Input<'a>, args: A) -> Result<Request<'a, P::Config, A>, Failure> {
    let config = P::config(input)?;
    if matches!(input.verb, Verb::Add | Verb::Del) {
        refuse_own_netns(input.env)?;
    }
    Ok(Request { conf: input.conf, config, args })
}

/// A plugin without its types.
struct Verbs {
    name: &'static str,
    versions: &'static [CniVersion],
    role: Role,
    add: fn(&Input<'_>, AddArgs, &mut Sys<'_>) -> Result<CniResult, Failure>,
    del: fn(&Input<'_>, DelArgs, &mut Sys<'_>) -> Result<(), Failure>,
    check: fn(&Input<'_>, AddArgs, &mut Sys<'_>) -> Result<(), Failure>,
    status: fn(&Input<'_>, &mut Sys<'_>) -> Result<(), Failure>,
    gc: fn(&Input<'_>, GcArgs, &mut Sys<'_>) -> Result<(), Failure>,
}

fn serve(verbs: &Verbs, host: &mut Host<'_>) -> Exit {
    let (document, exit) = match answer(verbs, host) {
        Ok(None) => return 0,
        Ok(Some(document)) => (document, 0),
        Err(failure) => (print_error(failure.object()), 1),
    };
    // Nothing can be told to a runtime that no longer listens.
    let written = host.stdout.write_all(document.as_bytes()).and_then(|()| host.stdout.flush());
    if written.is_ok() { exit } else { 1 }
}

/// The document to print, if any.
fn answer(verbs: &Verbs, host: &mut Host<'_>) -> Result<Option<String>, Failure> {
    let verb = match environment::command(&host.env)? {
        None => {
            print_about(verbs, host);
            return Ok(None);
        }
        Some(Command::Version) => return Ok(Some(version_document(verbs))),
        Some(Command::Verb(verb)) => Ok(verb),
        Some(Command::Unknown(name)) => {
            Err(Failure::new(Code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {name}")))
        }
    };
    let stdin = read_config(host)?;
    let conf = accept(&stdin)?;
    let verb = verb?;
    let conf = gate(verbs, verb, conf)?;
    perform(verbs, verb, &conf, host, &stdin)
}

fn perform(
    verbs: &Verbs,
    verb: Verb,
    conf: &NetConf,
    host: &mut Host<'_>,
    stdin: &[u8],
) -> Result<Option<String>, Failure> {
    let env = host.env.clone();
    let input = Input { conf, verb, env: &env };
    let mut sys = Sys::new(host, stdin);
    match verb {
        Verb::Add => add(verbs, &input, add_args(conf, &env)?, &mut sys).map(Some),
        Verb::Check => check(verbs, &input, add_args(conf, &env)?, &mut sys).map(|()| None),
        Verb::Del => del(verbs, &input, del_args(conf, &env)?, &mut sys).map(|()| None),
        Verb::Status => (verbs.status)(&input, &mut sys).map(|()| None),
        Verb::Gc => match conf.valid_attachments()? {
            Some(valid) => gc(verbs, &input, GcArgs { valid }, &mut sys).map(|()| None),
            None => Ok(None),
        },
    }
}

/// ADD. What a dead attempt has left is taken down first. Until the last plugin of the chain has succeeded, the
/// attachment is no living one: when a plugin fails, for whatever reason, or is killed, the next ADD may replace it.
fn add(verbs: &Verbs, input: &Input<'_>, args: AddArgs, sys: &mut Sys<'_>) -> Result<String, Failure> {
    // Whether it can be read is the plugin's business.
    let previous = input.conf.prev_result().ok().flatten();
    begin(verbs, input, &args, previous.as_ref(), sys)?;
    let added = (verbs.add)(input, args, sys).and_then(|result| {
        if previous.as_ref() == Some(&result) {
            return Ok(print_passed_on(input.conf.version, &result));
        }
        Ok(print_result(input.conf.version, &result)?)
    });
    let ended = sys.add_ends(added.is_ok(), previous.as_ref());
    added.map_err(|mut failure| {
        if let Err(error) = ended {
            failure.add_details(&error.to_string());
        }
        failure
    })
}

fn begin(
    verbs: &Verbs,
    input: &Input<'_>,
    args: &AddArgs,
    previous: Option<&CniResult>,
    sys: &mut Sys<'_>,
) -> Result<(), Failure> {
    let AddArgs { attachment, netns } = args;
    let cleared = Input { verb: Verb::Del, ..*input };
    let del = |netns, sys: &mut Sys<'_>| {
        (verbs.del)(&cleared, DelArgs { attachment: attachment.clone(), netns }, sys)
    };
    begin_turn(verbs, attachment, sys);
    match verbs.role {
        Role::Interface => {
            if let Some(remains) = sys.maker_begins(netns)? {
                del(remains.netns, sys)?;
                sys.remains_taken_down();
            }
        }
        Role::Chained if previous.is_some() => {
            if sys.follower_begins(netns) {
                // The container's interface is the new one: nothing of it is to be taken down.
                del(None, sys)?;
                sys.follower_took_down();
            }
        }
        Role::Chained | Role::Ipam { .. } => {}
    }
    Ok(())
}

fn check(verbs: &Verbs, input: &Input<'_>, args: CheckArgs, sys: &mut Sys<'_>) -> Result<(), Failure> {
    begin_turn(verbs, &args.attachment, sys);
    (verbs.check)(input, args, sys)
}

fn del(verbs: &Verbs, input: &Input<'_>, mut args: DelArgs, sys: &mut Sys<'_>) -> Result<(), Failure> {
    begin_turn(verbs, &args.attachment, sys);
    if !verbs.role.is_ipam() {
        args.netns = sys.del_begins(args.netns)?;
    }
    if verbs.role == Role::Interface
        && let Some(netns) = sys.elsewhere_begins(args.netns.as_ref())?
    {
        // Never an address without its link: what cannot be taken down there keeps its address.
        let elsewhere = DelArgs { attachment: args.attachment.clone(), netns: Some(netns) };
        (verbs.del)(input, elsewhere, sys)?;
        sys.elsewhere_taken_down();
    }
    (verbs.del)(input, args, sys)?;
    sys.del_ends(verbs.role == Role::Interface);
    Ok(())
}

fn gc(verbs: &Verbs, input: &Input<'_>, mut args: GcArgs, sys: &mut Sys<'_>) -> Result<(), Failure> {
    args.valid.extend(sys.running(&input.conf.network));
    let valid = args.valid.clone();
    (verbs.gc)(input, args, sys)?;
    if !verbs.role.is_ipam() {
        sys.gc_ends(verbs.name, verbs.role == Role::Interface, &input.conf.network, &valid);
    }
    Ok(())
}

/// The record is the caller's of an IPAM plugin.
fn begin_turn(verbs: &Verbs, attachment: &Attachment, sys: &mut Sys<'_>) {
    if !verbs.role.is_ipam() {
        sys.turn_begins(verbs.name, attachment);
    }
}

/// The two lines that Nomad and nerdctl read.
fn print_about(verbs: &Verbs, host: &mut Host<'_>) {
    let versions: Vec<_> = verbs.versions.iter().map(|version| version.as_str()).collect();
    let _ = writeln!(
        host.stderr,
        "CNI {} plugin {BUILD_VERSION}\nCNI protocol versions supported: {}",
        verbs.name,
        versions.join(", ")
    );
}

fn version_document(verbs: &Verbs) -> String {
    let versions: Vec<_> = verbs.versions.iter().map(|version| format!("\"{version}\"")).collect();
    format!("{{\"cniVersion\":\"{}\",\"supportedVersions\":[{}]}}\n", CniVersion::CURRENT, versions.join(","))
}

fn read_config(host: &mut Host<'_>) -> Result<Vec<u8>, Failure> {
    let failed = |reason: &str| Failure::new(Code::IO_FAILURE, format!("error reading from stdin: {reason}"));
    let mut stdin = Vec::new();
    host.stdin.take(STDIN_LIMIT + 1).read_to_end(&mut stdin).map_err(|error| failed(&error.to_string()))?;
    if stdin.len() as u64 > STDIN_LIMIT {
        return Err(failed(&format!("the network configuration is larger than {STDIN_LIMIT} bytes")));
    }
    Ok(stdin)
}

/// A document with an acceptable name; its version has not been looked at.
struct Named {
    json: Json,
    network: NetworkName,
}

fn accept(stdin: &[u8]) -> Result<Named, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(rename = "struct { Name string \"json:\\\"name\\\"\" }", default)]
    struct Shape {
        name: String,
    }
    let failed = |reason: String| {
        Failure::new(Code::DECODING_FAILURE, format!("error unmarshall network config: {reason}"))
    };
    let json = Json::parse(stdin).map_err(|error| failed(error.to_string()))?;
    let Shape { name } = cnibox_spec::decode(&json).map_err(|error| failed(error.to_string()))?;
    Ok(Named { json, network: NetworkName::new(&name)? })
}

/// The oldest version that has the verb.
fn first_version(verb: Verb) -> Option<CniVersion> {
    match verb {
        Verb::Add | Verb::Del => None,
        Verb::Check => Some(CniVersion::V0_4_0),
        Verb::Gc | Verb::Status => Some(CniVersion::V1_1_0),
    }
}

/// Refuses versions that do not have the verb or that the plugin does not speak.
fn gate(verbs: &Verbs, verb: Verb, named: Named) -> Result<NetConf, Failure> {
    #[derive(Default, Deserialize)]
    #[serde(rename = "struct { CNIVersion string \"json:\\\"cniVersion\\\"\" }", default)]
    struct Shape {
        #[serde(rename = "cniVersion")]
        version: String,
    }
    let undecodable = |error: &dyn std::fmt::Display| Failure::new(Code::DECODING_FAILURE, error.to_string());
    let Named { json, network } = named;
    let Shape { version: text } = cnibox_spec::decode(&json)
        .map_err(|error| undecodable(&format_args!("decoding version from network config: {error}")))?;
    if let Some(first) = first_version(verb) {
        let number = VersionNumber::parse(&text).map_err(|error| undecodable(&error))?;
        let refused = |who: &str| {
            let msg = format!("{who} version does not allow {}", verb.as_str());
            Failure::new(Code::INCOMPATIBLE_VERSION, msg)
        };
        if number < VersionNumber::of(first) {
            return Err(refused("config"));
        }
        if verbs.versions.iter().all(|version| VersionNumber::of(*version) < number) {
            return Err(refused("plugin"));
        }
    }
    let version = CniVersion::parse(&text).ok().filter(|version| verbs.versions.contains(version));
    let version = version.ok_or_else(|| incompatible(&text, verbs.versions))?;
    Ok(NetConf::new(json, network, version, text))
}

fn incompatible(text: &str, versions: &[CniVersion]) -> Failure {
    let config = if text.is_empty() { CniVersion::V0_1_0.as_str() } else { text };
    let details = format!(
        "config is {}, plugin supports {}",
        cnibox_spec::quoted(config),
        quoted_list(versions.iter().map(|version| version.as_str()))
    );
    let msg = "incompatible CNI versions".to_owned();
    ErrorObject { code: Code::INCOMPATIBLE_VERSION, msg, details }.into()
}

/// The reference looks only when the work is done, and then prints two documents. Looking first leaves the
/// host's own namespace alone; code and message are the same.
fn refuse_own_netns(env: &Env) -> Result<(), Failure> {
    let path = env.var("CNI_NETNS");
    if path.is_empty() || environment::netns_override(env) || !cnibox_netns::is_current(&*path) {
        return Ok(());
    }
    let msg = "plugin's netns and netns from CNI_NETNS should not be the same";
    Err(Failure::new(Code::INVALID_NETNS, msg))
}

fn add_args(conf: &NetConf, env: &Env) -> Result<AddArgs, Failure> {
    let DelArgs { attachment, netns } = del_args(conf, env)?;
    let netns = netns.ok_or_else(|| environment::required(&["CNI_NETNS"]))?;
    Ok(AddArgs { attachment, netns })
}

fn del_args(conf: &NetConf, env: &Env) -> Result<DelArgs, Failure> {
    let attachment = Attachment {
        network: conf.network.clone(),
        container: ContainerId::new(&env.var("CNI_CONTAINERID"))?,
        ifname: IfName::new(&env.var("CNI_IFNAME"))?,
    };
    Ok(DelArgs { attachment, netns: NetnsPath::new(&env.var("CNI_NETNS")) })
}
