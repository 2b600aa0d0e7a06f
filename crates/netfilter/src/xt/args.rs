// SPDX-License-Identifier: Apache-2.0
//! A rule as words of the iptables command line.

use super::{Match, Rule, Target};

impl Rule {
    /// The words after `-A <chain>`, in the order of the data. Nothing is quoted.
    #[must_use]
    pub fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        for condition in &self.matches {
            condition.push_args(&mut args);
        }
        self.target.push_args(&mut args);
        args
    }
}

/// The command line, with words that have spaces or quotes in quotes.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |word: String| {
            let plain =
                !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"');
            if plain { word } else { format!("{word:?}") }
        };
        f.write_str(&self.to_args().into_iter().map(shown).collect::<Vec<_>>().join(" "))
    }
}

impl Match {
    fn push_args(&self, args: &mut Vec<String>) {
        match self {
            Self::Source { address, negated } => option(args, *negated, "-s", address),
            Self::Destination { address, negated } => option(args, *negated, "-d", address),
            Self::InInterface { name, negated } => option(args, *negated, "-i", name),
            Self::OutInterface { name, negated } => option(args, *negated, "-o", name),
            Self::Protocol { protocol, negated } => option(args, *negated, "-p", protocol.name()),
            Self::DestinationPort { protocol, port } => {
                words(args, &["-p", protocol.name(), "--dport", &port.to_string()]);
            }
            Self::DestinationPorts { protocol, ports } => {
                let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
                words(args, &["-m", "multiport", "-p", protocol.name(), "--destination-ports", &ports]);
            }
            Self::Comment(text) => words(args, &["-m", "comment", "--comment", text]),
            Self::ConntrackState(states) => {
                words(args, &["-m", "conntrack", "--ctstate", &states.to_string()])
            }
            Self::DestinationLocal => words(args, &["-m", "addrtype", "--dst-type", "LOCAL"]),
            Self::Mark { value, mask, negated } => {
                words(args, &["-m", "mark"]);
                option(args, *negated, "--mark", masked(*value, *mask));
            }
            Self::Raw(raw) => args.extend(raw.iter().cloned()),
        }
    }
}

impl Target {
    fn push_args(&self, args: &mut Vec<String>) {
        match self {
            Self::Accept => words(args, &["-j", "ACCEPT"]),
            Self::Drop => words(args, &["-j", "DROP"]),
            Self::Return => words(args, &["-j", "RETURN"]),
            Self::Jump(chain) => words(args, &["-j", chain]),
            Self::Masquerade => words(args, &["-j", "MASQUERADE"]),
            Self::SetMark { value, mask } => {
                words(args, &["-j", "MARK", "--set-xmark", &format!("{value:#x}/{mask:#x}")]);
            }
            Self::Dnat(to) => words(args, &["-j", "DNAT", "--to-destination", &to.to_string()]),
        }
    }
}

fn option(args: &mut Vec<String>, negated: bool, flag: &str, value: impl ToString) {
    if negated {
        args.push("!".to_owned());
    }
    args.extend([flag.to_owned(), value.to_string()]);
}

fn words(args: &mut Vec<String>, words: &[&str]) {
    args.extend(words.iter().map(|word| (*word).to_owned()));
}

fn masked(value: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{value:#x}") } else { format!("{value:#x}/{mask:#x}") }
}
