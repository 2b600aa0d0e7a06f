// SPDX-License-Identifier: Apache-2.0
//! The daemon's command line, as Go's `flag` package reads it: one dash or two, `-name value` or `-name=value`.

use std::ffi::OsString;
use std::time::Duration;

use super::retry::Schedule;
use crate::config::DEFAULT_SOCKET;

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) pidfile: String,
    pub(super) host_prefix: String,
    pub(super) socket: String,
    pub(super) broadcast: bool,
    pub(super) schedule: Schedule,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            pidfile: String::new(),
            host_prefix: String::new(),
            socket: DEFAULT_SOCKET.to_owned(),
            broadcast: false,
            schedule: Schedule {
                timeout: Duration::from_secs(10),
                resend_max: Duration::from_secs(62),
                resend_timeout: Duration::from_secs(208),
            },
        }
    }
}

/// Reads the arguments behind `daemon`. As in Go everything from the first that is no flag on is ignored.
///
/// # Errors
/// What to say instead of running, and the exit status.
pub(super) fn parse(args: &[OsString]) -> Result<Flags, (String, u8)> {
    let mut flags = Flags::default();
    let mut args = args.iter().map(|arg| arg.to_string_lossy());
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix('-').filter(|rest| !rest.is_empty()) else { break };
        let name = name.strip_prefix('-').unwrap_or(name);
        if name.is_empty() {
            break;
        }
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        if name.is_empty() || name.starts_with('-') {
            return Err(wrong(&format!("bad flag syntax: {arg}")));
        }
        if matches!(name, "h" | "help") {
            return Err((USAGE.to_owned(), 0));
        }
        let value = match value {
            Some(value) => value.to_owned(),
            None if name == "broadcast" => "true".to_owned(),
            None => match args.next() {
                Some(value) => value.into_owned(),
                None if is_known(name) => return Err(wrong(&format!("flag needs an argument: -{name}"))),
                None => String::new(),
            },
        };
        flags.set(name, &value).map_err(|text| wrong(&text))?;
    }
    if flags.socket.is_empty() {
        DEFAULT_SOCKET.clone_into(&mut flags.socket);
    }
    Ok(flags)
}

impl Flags {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let invalid = |kind: &str| {
            format!("invalid {kind}value {} for flag -{name}: parse error", cnibox_spec::quoted(value))
        };
        let time = || duration(value).ok_or_else(|| invalid(""));
        match name {
            "pidfile" => value.clone_into(&mut self.pidfile),
            "hostprefix" => value.clone_into(&mut self.host_prefix),
            "socketpath" => value.clone_into(&mut self.socket),
            "broadcast" => self.broadcast = boolean(value).ok_or_else(|| invalid("boolean "))?,
            "timeout" => self.schedule.timeout = time()?,
            "resendmax" => self.schedule.resend_max = time()?,
            "resendtimeout" => self.schedule.resend_timeout = time()?,
            _ => return Err(format!("flag provided but not defined: -{name}")),
        }
        Ok(())
    }
}

fn is_known(name: &str) -> bool {
    USAGE.lines().filter_map(|line| line.strip_prefix("  -")).any(|line| line.split(' ').next() == Some(name))
}

fn wrong(text: &str) -> (String, u8) {
    (format!("{text}\n{USAGE}"), 2)
}

/// Go's `strconv.ParseBool`.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Go's `time.ParseDuration`: numbers with units, `1m30s` or `1.5h`. What is negative has passed at once, as zero has.
fn duration(text: &str) -> Option<Duration> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    match rest {
        "0" => return Some(Duration::ZERO),
        "" => return None,
        _ => {}
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        // "." and "" are no numbers; neither is 1.2.3.
        total += number.parse::<f64>().ok()? * seconds;
        rest = tail;
    }
    let total = if negative { 0.0 } else { total };
    (total <= LONGEST).then(|| Duration::from_secs_f64(total))
}

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
/// What Go has room for, 64 bits of nanoseconds, in seconds.
const LONGEST: f64 = 9.2e9;

const USAGE: &str = "Usage of daemon:
  -broadcast
    \tbroadcast DHCP leases
  -hostprefix string
    \toptional prefix to host root
  -pidfile string
    \toptional path to write daemon PID to
  -resendmax duration
    \toptional dhcp client max resend delay between requests (default 1m2s)
  -resendtimeout duration
    \toptional dhcp client resend timeout, no more retries after this timeout (default 3m28s)
  -socketpath string
    \toptional dhcp server socketpath
  -timeout duration
    \toptional dhcp client timeout duration for each request (default 10s)";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Flags, (String, u8)> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn one_dash_or_two_and_values_either_way() {
        let want = Flags {
            pidfile: "/p".into(),
            host_prefix: "/host".into(),
            socket: "/s".into(),
            broadcast: true,
            schedule: Schedule {
                timeout: Duration::from_secs(2),
                resend_max: Duration::from_millis(1500),
                resend_timeout: Duration::from_secs(90),
            },
        };
        let args =
            ["-pidfile", "/p", "--hostprefix=/host", "-socketpath=/s", "--broadcast", "-timeout", "2s"];
        let more = ["-resendmax", "1.5s", "--resendtimeout", "1m30s", "ignored", "-nonsense"];
        assert_eq!(parsed(&[args.as_slice(), &more].concat()), Ok(want));
        assert_eq!(parsed(&[]), Ok(Flags::default()));
        assert_eq!(parsed(&["-broadcast=false", "-socketpath="]), Ok(Flags::default()));
    }

    #[test]
    fn mistakes_are_named_as_go_names_them() {
        let first_line = |args: &[&str]| {
            let (text, status) = parsed(args).unwrap_err();
            assert_eq!(status, 2, "{args:?}: {text}");
            text.lines().next().unwrap().to_owned()
        };
        assert_eq!(first_line(&["-foo"]), "flag provided but not defined: -foo");
        assert_eq!(first_line(&["-foo=1"]), "flag provided but not defined: -foo");
        assert_eq!(first_line(&["-timeout"]), "flag needs an argument: -timeout");
        assert_eq!(first_line(&["-timeout", "2"]), "invalid value \"2\" for flag -timeout: parse error");
        assert_eq!(
            first_line(&["-broadcast=no"]),
            "invalid boolean value \"no\" for flag -broadcast: parse error"
        );
        assert_eq!(first_line(&["---x"]), "bad flag syntax: ---x");
        assert_eq!(parsed(&["-h"]), Err((USAGE.to_owned(), 0)));
    }

    #[test]
    fn durations_are_gos() {
        for (text, millis) in [
            ("0", 0),
            ("10s", 10_000),
            ("1h1m1s1ms", 3_661_001),
            (".5s", 500),
            ("1.s", 1000),
            ("+2s", 2000),
            ("-5s", 0),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", ".s", "1.2.3s", "10 s", "1d", "-", "99999999h", "1s-"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
