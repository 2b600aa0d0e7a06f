// SPDX-License-Identifier: Apache-2.0
//! Every reader of what comes from outside, with nothing behind it.

use std::io;

use crate::config::Config;
use crate::gob::{Decoder, Value};
use crate::message::Answer;
use crate::options::Options;
use crate::rpc;

/// A stream of gob values, as Go writes them.
pub fn gob(mut stream: &[u8]) {
    let mut decoder = Decoder::new(1 << 16);
    while let Ok(Some(value)) = decoder.next(&mut stream) {
        let _ = rpc::allocation_from(&value);
    }
}

/// A whole connection to the daemon, up to what its calls would do.
pub fn connection(stream: &[u8]) {
    let _ = rpc::serve(stream, io::sink(), |_, argument| {
        let (_, config) = Config::parse(argument.bytes_field("StdinData"))?;
        Options::new(&config, argument.text_field("Args"))?;
        Ok(Value::of([]))
    });
}

/// A frame from the network: the first four bytes are the number of the request.
pub fn frame(bytes: &[u8]) {
    let Some((xid, frame)) = bytes.split_first_chunk() else { return };
    let message = crate::packet::unpacked(frame).map_or_else(|| frame.to_vec(), |(message, _)| message);
    let mac = message.get(28..34).and_then(|mac| <[u8; 6]>::try_from(mac).ok()).unwrap_or_default();
    if let Some(answer) = Answer::read(&message, u32::from_be_bytes(*xid), mac, None) {
        let _ = answer.lease.result(1, true);
        let _ = serde_json::to_vec(&answer.lease);
    }
}
