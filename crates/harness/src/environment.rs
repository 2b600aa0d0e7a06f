// SPDX-License-Identifier: Apache-2.0
//! The environment variables of the protocol: read, required and validated in the reference's order, since that
//! decides which error is seen (`pkg/skel`, `getCmdArgsFromEnv`).

use cnibox_spec::Verb;
use cnibox_spec::{Code, ContainerId, ErrorObject, IdentError, IfName};
use cnibox_sys::Env;

/// `CNI_COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// What a plugin does.
    Verb(Verb),
    /// Answered without a configuration.
    Version,
    /// Anything else; reported only after stdin has been read and found good.
    Unknown(String),
}

impl Command {
    fn new(text: &str) -> Self {
        match text {
            "ADD" => Self::Verb(Verb::Add),
            "DEL" => Self::Verb(Verb::Del),
            "CHECK" => Self::Verb(Verb::Check),
            "STATUS" => Self::Verb(Verb::Status),
            "GC" => Self::Verb(Verb::Gc),
            "VERSION" => Self::Version,
            other => Self::Unknown(other.to_owned()),
        }
    }

    fn requires(&self, variable: &str) -> bool {
        match variable {
            "CNI_CONTAINERID" | "CNI_IFNAME" => {
                matches!(self, Self::Verb(Verb::Add | Verb::Check | Verb::Del))
            }
            "CNI_NETNS" => matches!(self, Self::Verb(Verb::Add | Verb::Check)),
            "CNI_PATH" => matches!(self, Self::Verb(_)),
            _ => false,
        }
    }
}

/// Checks the variables that `CNI_COMMAND` needs. `Ok(None)`: there is no command.
///
/// # Errors
/// A malformed variable at once; missing ones together.
pub(crate) fn command(env: &Env) -> Result<Option<Command>, ErrorObject> {
    let name = env.var("CNI_COMMAND");
    if name.is_empty() {
        return Ok(None);
    }
    let command = Command::new(&name);
    let mut missing = Vec::new();
    for variable in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"] {
        if !command.requires(variable) {
            continue;
        }
        let value = env.var(variable);
        if value.is_empty() {
            missing.push(variable);
        } else {
            validate(variable, &value)?;
        }
    }
    if missing.is_empty() {
        return Ok(Some(command));
    }
    let msg = format!("required env variables [{}] missing", missing.join(","));
    Err(ErrorObject { code: Code::INVALID_ENVIRONMENT, msg, details: String::new() })
}

fn validate(variable: &str, value: &str) -> Result<(), IdentError> {
    match variable {
        "CNI_CONTAINERID" => ContainerId::new(value).map(drop),
        "CNI_IFNAME" => IfName::new(value).map(drop),
        _ => Ok(()),
    }
}

/// Whether the runtime insists on a container in the plugin's own namespace.
pub(crate) fn netns_override(env: &Env) -> bool {
    let value = env.var("CNI_NETNS_OVERRIDE");
    value == "1" || value.eq_ignore_ascii_case("true")
}
