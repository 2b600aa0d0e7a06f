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
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use cnibox_netns::errno::io_text;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

use crate::rpc;
use flags::Flags;
use listener::Listener;
use log::log;
use table::Table;

/// Runs the daemon until a signal ends it; returns the exit status.
pub fn main(args: &[OsString]) -> u8 {
    let ended = flags::parse(args).and_then(|flags| run(flags).map_err(|text| (text, 1)));
    match ended {
        Ok(()) => 0,
        Err((text, status)) => {
            log(format_args!("{text}"));
            status
        }
    }
}

fn run(flags: Flags) -> Result<(), String> {
    let signals = |errno: Errno| format!("wait for signals: {}", io_text(&errno.into()));
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    // Before there are threads, which inherit it.
    ends.thread_block().map_err(signals)?;
    let _pid_file = listener::write_pid_file(&flags.pidfile)?;
    let Listener { socket, host_path, own: _own } = Listener::open(&flags.host_prefix, &flags.socket)
        .map_err(|error| format!("Error getting listener: {error}"))?;
    let table = Arc::new(Table::new(flags, &host_path));
    // Before the first call is answered, which may be for one of them.
    table.resume();
    let accepting = move || accept(&socket, &table);
    std::thread::Builder::new()
        .name("accept".to_owned())
        .spawn(accepting)
        .map_err(|error| format!("start the thread that accepts calls: {}", io_text(&error)))?;
    ends.wait().map_err(signals)?;
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
