// SPDX-License-Identifier: Apache-2.0
//! The administrator's list of sysctls that configurations may set, one regular expression on a line.

use std::io::ErrorKind;

use cnibox_netns::errno::io_text;
use cnibox_spec::list;
use cnibox_sys::Failure;
use regex_lite::Regex;

use crate::sysctls::Sysctls;

/// Checks names against the host's list, if it has one.
///
/// # Errors
/// The list does not have one of them; it is there but cannot be read, or a line of it is no regular expression.
pub(crate) fn check(sysctls: &Sysctls) -> Result<(), Failure> {
    if sysctls.0.is_empty() {
        return Ok(());
    }
    match std::fs::read(PATH) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            // A directory can be opened.
            let action = if error.kind() == ErrorKind::IsADirectory { "read" } else { "open" };
            Err(Failure::internal(format!("{action} {PATH}: {}", io_text(&error))))
        }
        Ok(text) => check_lines(&String::from_utf8_lossy(&text), sysctls),
    }
}

/// A line allows every name that it matches anywhere. Later lines are not looked at once one has matched.
fn check_lines(text: &str, sysctls: &Sysctls) -> Result<(), Failure> {
    let lines: Vec<_> = text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut patterns = Vec::new();
    for (name, _) in &sysctls.0 {
        if !is_allowed(name, &lines, &mut patterns)? {
            return Err(Failure::internal(format!(
                "Sysctl {name} is not allowed. Only the following sysctls are allowed: {}",
                list(&lines)
            )));
        }
    }
    Ok(())
}

/// `patterns` are those of the lines that have been looked at before.
fn is_allowed(name: &str, lines: &[&str], patterns: &mut Vec<Regex>) -> Result<bool, Failure> {
    if patterns.iter().any(|pattern| pattern.is_match(name)) {
        return Ok(true);
    }
    for line in lines.iter().skip(patterns.len()) {
        let pattern = Regex::new(line)
            .map_err(|error| Failure::internal(format!("error parsing regexp: `{line}`: {error}")))?;
        let is_match = pattern.is_match(name);
        patterns.push(pattern);
        if is_match {
            return Ok(true);
        }
    }
    Ok(false)
}

const PATH: &str = "/etc/cni/tuning/allowlist.conf";

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(list: &str, name: &str) -> Result<(), String> {
        check_lines(list, &Sysctls(vec![(name.to_owned(), "1".to_owned())]))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_expressions_that_match_anywhere() {
        let list = "\n ^net\\.ipv4\\.conf\\.(all|default)\\. \n\nnet.core";
        assert!(check_one(list, "net.ipv4.conf.all.log_martians").is_ok());
        assert!(check_one(list, "x.net.core.somaxconn").is_ok());
        assert_eq!(
            check_one(list, "net.ipv4.conf.eth0.x").unwrap_err(),
            "Sysctl net.ipv4.conf.eth0.x is not allowed. Only the following sysctls are allowed: \
             [^net\\.ipv4\\.conf\\.(all|default)\\. net.core]"
        );
        assert_eq!(
            check_one("", "net.a").unwrap_err(),
            "Sysctl net.a is not allowed. Only the following sysctls are allowed: []"
        );
    }

    #[test]
    fn a_line_that_is_no_expression_allows_nothing() {
        assert!(check_one("net(", "net(").unwrap_err().starts_with("error parsing regexp: `net(`: "));
        assert!(check_one("net.a\nnet(", "net.a").is_ok());
    }
}
