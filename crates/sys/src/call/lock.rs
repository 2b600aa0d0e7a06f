// SPDX-License-Identifier: Apache-2.0
//! Waiting for another process's lock, but not for ever: whoever may open a file may hold its lock.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Takes the lock of an open file (`flock(2)`), which is held until the file is closed. `None` when another process had it
/// for as long as `patience`.
///
/// # Errors
/// The file cannot be locked, or there is no thread to wait with.
pub fn lock_within(file: File, patience: Duration) -> io::Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => wait(file, patience),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// `flock` has no deadline, so that a thread waits in it. One that is left behind gives the lock back at once, since
/// nobody receives it.
fn wait(file: File, patience: Duration) -> io::Result<Option<File>> {
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::Builder::new().name("flock".to_owned()).stack_size(64 << 10);
    waiter.spawn(move || {
        let _ = sender.send(lock_uninterrupted(file));
    })?;
    receiver.recv_timeout(patience).ok().transpose()
}

fn lock_uninterrupted(file: File) -> io::Result<File> {
    loop {
        match file.lock() {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
