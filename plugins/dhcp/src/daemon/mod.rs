// SPDX-License-Identifier: Apache-2.0
//! `dhcp daemon`: keeps the leases that plugins ask for.
//!
//! One thread for each connection, one for each lease, and the first one waits for the signal to end. A lease's thread
//! enters the container's namespace only while it talks to a server: a container that is gone is not held there.

mod entry;
mod flags;
mod keeper;
mod listener;
mod log;
mod retry;
mod table;

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cnibox_netns::errno::io_text;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use thiserror::Error;

use crate::rpc;
use flags::Flags;
use listener::{Listener, ListenerError, PidFileError};
use log::log;
use table::Table;

/// Why the daemon does not start.
#[derive(Debug, Error)]
enum DaemonError {
    #[error("{0}")]
    PidFile(#[from] PidFileError),
    #[error("Error getting listener: {0}")]
    Listener(#[from] ListenerError),
    #[error("start the thread that accepts calls: {}", io_text(.0))]
    Accept(io::Error),
    #[error("wait for signals: {}", io_text(&io::Error::from(*.0)))]
    Signals(#[from] Errno),
}

/// Runs the daemon until a signal ends it; returns the exit status.
pub fn main(args: &[OsString]) -> u8 {
    let ended = flags::parse(args).and_then(|flags| run(flags).map_err(|error| (error.to_string(), 1)));
    match ended {
        Ok(()) => 0,
        Err((text, status)) => {
            log(format_args!("{text}"));
            status
        }
    }
}

fn run(flags: Flags) -> Result<(), DaemonError> {
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    // Before there are threads, which inherit it.
    ends.thread_block()?;
    let _pid_file = listener::write_pid_file(&flags.pidfile)?;
    let Listener { socket, host_path, own: _own } = Listener::open(&flags.host_prefix, &flags.socket)?;
    let table = Arc::new(Table::new(flags, &host_path));
    // Before the first call is answered, which may be for one of them.
    table.resume();
    let accepting = move || accept(&socket, &table);
    std::thread::Builder::new().name("accept".to_owned()).spawn(accepting).map_err(DaemonError::Accept)?;
    ends.wait()?;
    Ok(())
}

fn accept(listener: &UnixListener, table: &Arc<Table>) {
    loop {
        let served = listener.accept().and_then(|(stream, _)| {
            let table = Arc::clone(table);
            let serve = move || {
                // A plugin that goes away or talks nonsense has nobody who would want to hear of it.
                let _ = rpc::serve(&stream, &stream, |method, argument| table.answer(method, argument));
            };
            std::thread::Builder::new().name("call".to_owned()).spawn(serve)
        });
        if let Err(error) = served {
            log(format_args!("accept: {}", io_text(&error)));
            // Out of descriptors or memory: trying again at once would only make it worse.
            std::thread::sleep(BREATH);
        }
    }
}

/// A thread for each lease should cost little.
const STACK: usize = 512 << 10;
const BREATH: Duration = Duration::from_millis(100);

/// Reads the configuration of a call as [`table::Table`] does, and nothing more.
#[cfg(feature = "fuzzing")]
pub(crate) fn understood(call: &rpc::Call) -> Result<(), String> {
    let (_, config) = table::netconf(call)?;
    crate::options::Options::new(&config, &call.args).map(drop).map_err(|error| error.to_string())
}
