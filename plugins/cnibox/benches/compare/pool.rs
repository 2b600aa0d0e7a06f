// SPDX-License-Identifier: Apache-2.0
//! host-local alone, with a pool that is more or less full.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::chain::{Chain, WHOLE};
use crate::options::Options;
use crate::pod::Pod;
use crate::report::{Section, ms, times};
use crate::samples::Samples;
use crate::turns::{Side, Turn, side_by_side};

/// ADD, CHECK and DEL by the number of reservations, with a free address next and after the range was gone through once.
pub(crate) fn run(options: &Options) -> Result<Vec<Section>> {
    let mut table = Section::new(
        "host-local alone",
        "One /16. \"Wrapped\": the search starts at the range's beginning, where all addresses are taken. \"First\": the \
         first call after the reservations appeared without us, when no index can be trusted.",
        &["reservations, verb", "cnibox", "Go plugins", "ratio"],
    );
    let mut small = None;
    for &reservations in options.sizes(&[10, 1_000, 10_000, 60_000]) {
        for wrapped in [false, true] {
            let sides = measure(options, Pool { reservations, wrapped })?;
            let name = if wrapped { format!("{reservations} wrapped") } else { reservations.to_string() };
            for verb in ["ADD (first)", "ADD", "CHECK", "DEL"] {
                let [ours, go] =
                    [0, 1].map(|side| sides.get(side).map_or(f64::NAN, |s| s.median(verb, WHOLE)));
                table.compare(&format!("{name}, {verb}"), ours, go);
                if verb == "ADD" && reservations == 60_000 {
                    let what = format!("host-local {verb}, {name} reservations");
                    table.headline(&what, ms(ours), ms(go), times(go / ours));
                }
            }
            growth(&mut table, &name, small.as_deref(), &sides);
            small.get_or_insert(sides);
        }
    }
    Ok(vec![table])
}

/// Adds what the reservations cost compared with the smallest pool.
fn growth(table: &mut Section, name: &str, small: Option<&[Samples]>, sides: &[Samples]) {
    let Some(small) = small else { return };
    for verb in ["ADD", "CHECK", "DEL"] {
        let median =
            |sides: &[Samples], side: usize| sides.get(side).map_or(f64::NAN, |s| s.median(verb, WHOLE));
        let grown = |side: usize| times(median(sides, side) / median(small, side));
        table.row([format!("{name}, {verb}, compared with 10"), grown(0), grown(1), String::new()]);
    }
}

#[derive(Debug, Clone, Copy)]
struct Pool {
    reservations: usize,
    wrapped: bool,
}

fn measure(options: &Options, pool: Pool) -> Result<Vec<Samples>> {
    let rounds = options.rounds(if pool.reservations < 10_000 { 15 } else { 7 });
    side_by_side(&[Side::Ours, Side::Go], |_, side, turn| {
        let chain = Chain::new(options.bin(side), network());
        let (mut first, mut samples) = (Samples::default(), Samples::default());
        turn.take(|| pool.fill())?;
        round(&chain, pool, turn, (0, &mut first))?;
        for number in 1..=rounds {
            round(&chain, pool, turn, (number, &mut samples))?;
        }
        samples.adopt("ADD (first)", &first, "ADD");
        Ok(samples)
    })
}

fn round(chain: &Chain, pool: Pool, turn: &Turn<'_>, (number, samples): (usize, &mut Samples)) -> Result<()> {
    let pod = Pod::new(number, 0)?;
    let result = turn.take(|| {
        pool.rewind()?;
        chain.add(&pod, samples)
    })?;
    turn.take(|| chain.check(&pod, &result, samples))?;
    turn.take(|| chain.del(&pod, &result, samples))
}

impl Pool {
    /// Writes the reservations as either host-local would have.
    fn fill(self) -> Result<()> {
        fs::create_dir_all(DIR).context("create the pool's directory")?;
        for number in 0..self.reservations {
            let path = Path::new(DIR).join(address(number).to_string());
            fs::write(path, format!("filler{number}\r\neth0")).context("write a reservation")?;
        }
        Ok(())
    }

    /// Sets where the next search starts.
    fn rewind(self) -> Result<()> {
        let last = if self.wrapped { LAST } else { address(self.reservations.saturating_sub(1)) };
        fs::write(Path::new(DIR).join("last_reserved_ip.0"), last.to_string())
            .context("write the last address")
    }
}

fn network() -> serde_json::Value {
    let range = json!([[{"subnet": "10.1.0.0/16"}]]);
    json!({"cniVersion": "1.0.0", "name": "pool", "plugins": [
        {"type": "host-local", "ipam": {"type": "host-local", "dataDir": "/run/pool", "ranges": range}},
    ]})
}

/// The first address is the gateway's.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + u32::try_from(number).unwrap_or(0))
}

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const LAST: Ipv4Addr = Ipv4Addr::new(10, 1, 255, 254);
/// Of the network "pool".
const DIR: &str = "/run/pool/pool";
