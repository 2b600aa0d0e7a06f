// SPDX-License-Identifier: Apache-2.0
//! The environment variables of the protocol: read, required and validated in the reference's order, since that
//! decides which error is seen (`pkg/skel`, `getCmdArgsFromEnv`).

use cnibox_spec::{Code, ContainerId, ErrorObject, IdentError, IfName, Verb};
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
        match Verb::ALL.into_iter().find(|verb| verb.as_str() == text) {
            Some(verb) => Self::Verb(verb),
            None if text == "VERSION" => Self::Version,
            None => Self::Unknown(text.to_owned()),
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
    let Command::Verb(verb) = command else { return Ok(Some(command)) };
    let mut missing = Vec::new();
    for (variable, _, validate) in REQUIRED.iter().filter(|(_, verbs, _)| verbs.contains(&verb)) {
        let value = env.var(variable);
        if value.is_empty() {
            missing.push(*variable);
        } else {
            validate(&value)?;
        }
    }
    if missing.is_empty() { Ok(Some(command)) } else { Err(required(&missing)) }
}

/// What is answered where these variables are missing.
pub(crate) fn required(variables: &[&str]) -> ErrorObject {
    let msg = format!("required env variables [{}] missing", variables.join(","));
    ErrorObject { code: Code::INVALID_ENVIRONMENT, msg, details: String::new() }
}

/// Whether a value has the right form.
type Validate = fn(&str) -> Result<(), IdentError>;

/// The variables, the verbs that need them, and their form.
const REQUIRED: [(&str, &[Verb], Validate); 4] = [
    ("CNI_CONTAINERID", &[Verb::Add, Verb::Check, Verb::Del], |id| ContainerId::new(id).map(drop)),
    ("CNI_NETNS", &[Verb::Add, Verb::Check], |_| Ok(())),
    ("CNI_IFNAME", &[Verb::Add, Verb::Check, Verb::Del], |name| IfName::new(name).map(drop)),
    ("CNI_PATH", &Verb::ALL, |_| Ok(())),
];

/// Whether the runtime insists on a container in the plugin's own namespace.
pub(crate) fn netns_override(env: &Env) -> bool {
    let value = env.var("CNI_NETNS_OVERRIDE");
    value == "1" || value.eq_ignore_ascii_case("true")
}
