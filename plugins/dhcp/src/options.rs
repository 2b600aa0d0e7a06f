// SPDX-License-Identifier: Apache-2.0
//! Options that a configuration adds to what is sent and asked for (reference: `options.go`, `prepareOptions`).

use cnibox_spec::quoted;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// What goes into every request to the server. Kept with the lease, since every renewal needs it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Options {
    /// Option numbers and values; a later one replaces an earlier one.
    pub(crate) provide: Vec<(u8, String)>,
    /// Option numbers to ask for; empty for the usual ones.
    pub(crate) request: Vec<u8>,
}

impl Options {
    /// The options of a configuration; `args` is `CNI_ARGS`.
    ///
    /// # Errors
    /// What is wrong with an entry of `provide` or `request`.
    pub(crate) fn new(config: &Config, args: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for entry in &config.provide {
            let (option, value) = (&entry.option.0, &entry.value);
            let code = code(option)?;
            if value.len() > VALUE_LIMIT {
                return Err(format!("value too long for option {}: {}", quoted(option), quoted(value)));
            }
            if !value.is_empty() {
                options.provide.push((code, value.clone()));
            }
            if let Some(argument) = argument(args, &entry.from_arg) {
                if argument.len() > VALUE_LIMIT {
                    return Err(format!(
                        "value too long for option {} from CNI_ARGS {}: {}",
                        quoted(option),
                        quoted(&entry.from_arg),
                        quoted(value)
                    ));
                }
                options.provide.push((code, argument.to_owned()));
            }
        }
        options.ask(config)?;
        Ok(options)
    }

    fn ask(&mut self, config: &Config) -> Result<(), String> {
        let named = config.request.iter().filter(|entry| !entry.option.0.is_empty());
        let mut wanted = named.map(|entry| code(&entry.option.0)).collect::<Result<Vec<_>, _>>()?;
        if !config.request.iter().any(|entry| entry.skip_default) {
            wanted.extend(ALWAYS);
        }
        if config.use_dns {
            wanted.extend(NAMES);
        }
        for code in wanted {
            if !self.request.contains(&code) {
                self.request.push(code);
            }
        }
        Ok(())
    }
}

/// The last pair with this key; pieces that are no pairs are passed over.
fn argument<'a>(args: &'a str, key: &str) -> Option<&'a str> {
    args.split(';')
        .filter_map(|pair| pair.split_once('='))
        .rfind(|(known, _)| *known == key)
        .map(|(_, value)| value)
}

/// The number of an option that has one of the names of `dhcp-options(5)` or is a number already.
fn code(option: &str) -> Result<u8, String> {
    if let Some((_, code)) = CODES.iter().find(|(name, _)| *name == option) {
        return Ok(*code);
    }
    let failed = |reason| {
        let option = quoted(option);
        format!(
            "Can not parse option {option}: Can not parse option: strconv.ParseUint: parsing {option}: {reason}"
        )
    };
    if option.is_empty() || !option.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    option.parse().map_err(|_| failed("value out of range"))
}

const CODES: [(&str, u8); 6] = [
    ("dhcp-client-identifier", 61),
    ("subnet-mask", 1),
    ("routers", 3),
    ("host-name", 12),
    ("user-class", 77),
    ("vendor-class-identifier", 60),
];
/// Asked for unless an entry has `skipDefault`.
const ALWAYS: [u8; 2] = [3, 1];
/// Name servers, domain name, search list.
const NAMES: [u8; 3] = [6, 15, 119];
/// The length of an option's value is one byte.
const VALUE_LIMIT: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OptionName, Provide, RequestShape};

    fn provide(option: &str, value: &str, from_arg: &str) -> Provide {
        Provide { option: OptionName(option.into()), value: value.into(), from_arg: from_arg.into() }
    }

    fn request(option: &str, skip_default: bool) -> RequestShape {
        RequestShape { skip_default, option: OptionName(option.into()) }
    }

    #[test]
    fn names_and_numbers_are_options() {
        assert_eq!(code("host-name"), Ok(12));
        assert_eq!(code("12"), Ok(12));
        let text = |option| code(option).unwrap_err().to_string();
        let want = "Can not parse option \"doNotparseMe\": Can not parse option: strconv.ParseUint: parsing \
                    \"doNotparseMe\": invalid syntax";
        assert_eq!(text("doNotparseMe"), want);
        assert!(text("256").ends_with("parsing \"256\": value out of range"));
        assert!(text("+1").ends_with("invalid syntax"));
    }

    #[test]
    fn values_come_from_the_configuration_and_from_arguments() {
        let config = Config {
            provide: vec![
                provide("host-name", "fixed", "NAME"),
                provide("77", "", "CLASS"),
                provide("60", "v", ""),
            ],
            ..Config::default()
        };
        let options = Options::new(&config, "IgnoreUnknown=1;NAME=a=b;junk;NAME=last").unwrap();
        let want = [(12, "fixed"), (12, "last"), (60, "v")].map(|(code, value)| (code, value.to_owned()));
        assert_eq!(options.provide, want);
    }

    #[test]
    fn values_have_an_end() {
        let long = "x".repeat(256);
        let config = Config { provide: vec![provide("12", &long, "")], ..Config::default() };
        let error = Options::new(&config, "").unwrap_err().to_string();
        assert_eq!(error, format!("value too long for option \"12\": \"{long}\""));
        let config = Config { provide: vec![provide("12", "", "A")], ..Config::default() };
        let error = Options::new(&config, &format!("A={long}")).unwrap_err().to_string();
        assert_eq!(error, "value too long for option \"12\" from CNI_ARGS \"A\": \"\"");
    }

    #[test]
    fn what_is_asked_for() {
        let asked = |request: Vec<RequestShape>, use_dns| {
            Options::new(&Config { request, use_dns, ..Config::default() }, "").unwrap().request
        };
        assert_eq!(asked(vec![], false), [3, 1]);
        assert_eq!(asked(vec![request("26", false), request("1", false)], false), [26, 1, 3]);
        assert_eq!(asked(vec![request("26", false), request("", true)], false), [26]);
        assert_eq!(asked(vec![request("", true)], false), [0; 0]);
        assert_eq!(asked(vec![], true), [3, 1, 6, 15, 119]);
    }
}
