// SPDX-License-Identifier: Apache-2.0
//! Calling another plugin: found in `CNI_PATH`, called in this process when it is this executable, executed
//! otherwise (reference: `pkg/invoke` of the CNI library).

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cnibox_netns::errno::io_text;
use cnibox_spec::{CniResult, Code, ErrorObject, Json, Verb, list, parse_result, quoted};
use serde::Deserialize;

use crate::call::{Entry, Exit, Failure, Host, Sys};

impl Sys<'_> {
    /// Calls `plugin` with ADD, this call's environment and configuration, and reads its result. `version` is the
    /// configuration's `cniVersion`, which a result without one has too.
    pub(crate) fn delegate_add(&mut self, plugin: &str, version: &str) -> Result<CniResult, Failure> {
        let stdout = self.delegate(Verb::Add, plugin)?;
        let failed = |error: String| Failure::internal(error);
        let mut json = Json::parse(&stdout)
            .map_err(|error| failed(format!("failed to unmarshal raw result: {error}")))?;
        let answered = json.member("cniVersion").and_then(Json::as_str).unwrap_or_default().to_owned();
        if answered.is_empty() {
            json.set("cniVersion", Json::String(version.to_owned()));
            return parse_result(version, &json).map_err(|error| failed(error.to_string()));
        }
        parse_result(&answered, &json).map_err(|error| failed(error.to_string()))
    }

    /// Whether `plugin` may ask the network by the container's interface. Only of this executable's plugins is it known which
    /// do not.
    #[must_use]
    pub fn asks_network(&self, plugin: &str) -> bool {
        let path = find(plugin, self.env.cni_path());
        let own =
            path.is_ok_and(|path| is_this_executable(&path)).then(|| self.registry.find(plugin)).flatten();
        own.is_none_or(|own| own.asks_network)
    }

    /// Calls `plugin` with any verb, this call's environment and configuration; answers with its stdout.
    ///
    /// # Errors
    /// The plugin cannot be called; what it answered, if it failed.
    pub fn delegate(&mut self, verb: Verb, plugin: &str) -> Result<Vec<u8>, Failure> {
        let own = self.registry.find(plugin);
        // The reference starts processes until none can be started.
        if own.is_some_and(|own| !own.is_delegate) {
            return Err(Failure::invalid_config(format!("{} is no IPAM plugin", quoted(plugin))));
        }
        let path = find(plugin, self.env.cni_path())?;
        let answer = match own.filter(|_| is_this_executable(&path)) {
            Some(own) => self.call(verb, own.entry),
            None => {
                let callers = self.env.var(CALLERS).parse().unwrap_or(0_u32);
                if callers >= DEPTH {
                    let plugin = quoted(plugin);
                    let msg =
                        format!("plugin {plugin} would be called by {DEPTH} others that call each other");
                    return Err(Failure::invalid_config(msg));
                }
                self.execute(verb, &path, callers + 1)?
            }
        };
        if answer.exit != 0 {
            return Err(error_object(&answer).into());
        }
        let _ = self.stderr.write_all(&answer.stderr);
        Ok(answer.stdout)
    }

    fn call(&mut self, verb: Verb, entry: Entry) -> Answer {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exit = entry(&mut Host {
            env: self.env.clone().with("CNI_COMMAND", verb.as_str()),
            stdin: &mut &*self.stdin,
            stdout: &mut stdout,
            stderr: &mut stderr,
            registry: self.registry,
            fail_at: None,
        });
        Answer { exit, status: format!("exit status {exit}"), stdout, stderr }
    }

    fn execute(&self, verb: Verb, path: &Path, callers: u32) -> Result<Answer, Failure> {
        let mut command = Command::new(path);
        command.env_clear().envs(self.env.iter());
        command.env("CNI_COMMAND", verb.as_str()).env(CALLERS, callers.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: io::Error| {
            let (path, error) = (path.display(), io_text(&error));
            let msg = format!("netplugin failed with no error message: fork/exec {path}: {error}");
            Failure::new(Code::UNKNOWN, msg)
        };
        let mut attempts_left = BUSY_ATTEMPTS;
        let child = loop {
            attempts_left -= 1;
            match command.spawn() {
                // The plugin is being installed at this moment; there is nothing to wait for but time.
                Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && attempts_left > 0 => {
                    std::thread::sleep(Duration::from_secs(1));
                }
                started => break started.map_err(failed)?,
            }
        };
        talk(child, self.stdin).map_err(failed)
    }
}

/// How many delegates have called each other before a plugin was called, in its environment. Nothing else tells that a
/// plugin is called by itself, by way of somebody else's.
const CALLERS: &str = "CNIBOX_DELEGATES";

/// No plugin that is known needs more than one.
const DEPTH: u32 = 4;

/// "text file busy" is tried this often, a second apart, as by the reference.
const BUSY_ATTEMPTS: u32 = 6;

pub(crate) struct Answer {
    pub(crate) exit: Exit,
    /// As Go prints a process's end: `exit status 1`, `signal: killed`.
    status: String,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Writes the configuration while the outputs are read: a delegate may answer before it has read everything. One that
/// says too much, or that there are no threads for, is ended.
pub(crate) fn talk(mut child: Child, config: &[u8]) -> io::Result<Answer> {
    let said = listen(&mut child, config.to_owned());
    if said.is_err() {
        // It may be gone by itself. Processes that it has started may keep its pipes: the threads are left to themselves.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let [stdout, stderr] = said?;
    Ok(Answer { exit: Exit::from(!status.success()), status: status_text(status), stdout, stderr })
}

/// What the delegate says on its standard output and standard error.
fn listen(child: &mut Child, config: Vec<u8>) -> io::Result<[Vec<u8>; 2]> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let thread = || std::thread::Builder::new().stack_size(STACK);
    // A delegate that does not read its configuration is not an error.
    thread().spawn(move || stdin.map(|mut pipe| pipe.write_all(&config)))?;
    let errors = thread().spawn(move || bounded(stderr))?;
    let answer = bounded(stdout)?;
    let errors = errors.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok([answer, errors])
}

fn bounded(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut said = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(ANSWER_LIMIT + 1).read_to_end(&mut said)?;
    }
    if said.len() as u64 > ANSWER_LIMIT { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(said) }
}

/// The most that a delegate may say, in bytes: as much as a configuration may have.
const ANSWER_LIMIT: u64 = 2 << 20;
/// Bytes; the threads only copy.
const STACK: usize = 64 << 10;

fn status_text(status: std::process::ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => {
            let dumped = if status.core_dumped() { " (core dumped)" } else { "" };
            format!("signal: {}{dumped}", cnibox_netns::errno::signal_text(signal.unwrap_or_default()))
        }
    }
}

/// The first regular file called `name`, symlinks followed; whether it can be executed is not asked.
fn find(name: &str, paths: Vec<String>) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(Failure::invalid_config("no plugin name provided"));
    }
    if name.contains('/') {
        return Err(Failure::invalid_config(format!("invalid plugin name: {name}")));
    }
    if paths.is_empty() {
        return Err(Failure::internal("no paths provided"));
    }
    let candidates = paths.iter().map(|dir| Path::new(dir).join(name));
    let found = candidates.into_iter().find(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file()));
    found.ok_or_else(|| {
        let msg = format!("failed to find plugin {} in path {}", quoted(name), list(&paths));
        Failure::internal(msg)
    })
}

fn is_this_executable(path: &Path) -> bool {
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    let own = File::open("/proc/self/exe").and_then(|file| file.metadata()).map(identity);
    let found = fs::metadata(path).map(identity);
    matches!((own, found), (Ok(own), Ok(found)) if own == found)
}

/// What a failed delegate said, in the form that the reference gives it.
pub(crate) fn error_object(answer: &Answer) -> ErrorObject {
    let said = |bytes| quoted(&String::from_utf8_lossy(bytes));
    let msg = if !answer.stdout.is_empty() {
        match Json::parse(&answer.stdout)
            .map_err(|error| error.to_string())
            .and_then(|json| as_error_object(&json))
        {
            Ok(object) => return object,
            Err(reason) => {
                let stdout = said(&answer.stdout);
                format!("netplugin failed but error parsing its diagnostic message {stdout}: {reason}")
            }
        }
    } else if answer.stderr.is_empty() {
        format!("netplugin failed with no error message: {}", answer.status)
    } else {
        format!("netplugin failed: {}", said(&answer.stderr))
    };
    ErrorObject { code: Code::UNKNOWN, msg, details: String::new() }
}

fn as_error_object(json: &Json) -> Result<ErrorObject, String> {
    #[derive(Default, Deserialize)]
    #[serde(rename = "Error", default)]
    struct Shape {
        code: u64,
        msg: String,
        details: String,
    }
    let Shape { code, msg, details } = cnibox_spec::decode(json).map_err(|error| error.to_string())?;
    Ok(ErrorObject { code: Code(u32::try_from(code).unwrap_or(u32::MAX)), msg, details })
}
