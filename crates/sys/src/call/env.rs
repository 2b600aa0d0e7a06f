// SPDX-License-Identifier: Apache-2.0
//! The environment as data, so that a plugin called in this process sees its own.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

/// Environment variables. The process's own are read once, by `main`, and never written.
#[derive(Clone, Debug, Default)]
pub struct Env {
    vars: Vec<(OsString, OsString)>,
}

impl Env {
    /// The value as text, invalid UTF-8 replaced. Absent and empty are the same thing, as in Go's `os.Getenv`.
    #[must_use]
    pub fn var(&self, name: &str) -> Cow<'_, str> {
        self.var_os(name).map_or(Cow::Borrowed(""), OsStr::to_string_lossy)
    }

    /// The value's bytes; `None` when the variable is not there.
    #[must_use]
    pub fn var_os(&self, name: &str) -> Option<&OsStr> {
        self.vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// The same environment with one variable set.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.vars.retain(|(key, _)| key != name);
        self.vars.push((name.into(), value.into()));
        self
    }

    /// Every variable, for a process to be started.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars.iter().map(|(key, value)| (key.as_os_str(), value.as_os_str()))
    }

    /// The directories of `CNI_PATH`. An empty one is the current directory, as in Go's `filepath.SplitList`.
    #[must_use]
    pub fn cni_path(&self) -> Vec<String> {
        match &*self.var("CNI_PATH") {
            "" => Vec::new(),
            path => path.split(':').map(str::to_owned).collect(),
        }
    }
}

impl FromIterator<(OsString, OsString)> for Env {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(vars: I) -> Self {
        Self { vars: vars.into_iter().collect() }
    }
}
