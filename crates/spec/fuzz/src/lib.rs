// SPDX-License-Identifier: Apache-2.0
//! The loop of every fuzz target: takes an input of the corpus, changes it at random, runs the target.
//!
//! Plain stable Rust with a seeded generator, so that a run repeats and needs no tool. A panic of the target, or a run
//! that takes seconds, ends the process with the input in a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs `target` on changed inputs of the corpus for as long as the command line says.
///
/// Arguments: `SECONDS CORPUS [SEED]`, or `--input FILE` to repeat one.
pub fn fuzz(target: fn(&[u8])) -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--input", file] => {
            target(&fs::read(file).expect("read the input"));
            ExitCode::SUCCESS
        }
        [seconds, corpus, rest @ ..] => {
            let seconds = seconds.parse().expect("SECONDS is a number");
            let seed = rest.first().map_or(1, |seed| seed.parse().expect("SEED is a number"));
            run(target, Duration::from_secs(seconds), Path::new(corpus), seed)
        }
        _ => {
            eprintln!("usage: SECONDS CORPUS [SEED] | --input FILE");
            ExitCode::FAILURE
        }
    }
}

fn run(target: fn(&[u8]), time: Duration, corpus: &Path, seed: u64) -> ExitCode {
    let inputs = read(corpus);
    assert!(!inputs.is_empty(), "{} has no inputs", corpus.display());
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (started, mut runs) = (Instant::now(), 0_u64);
    for (name, input) in &inputs {
        guarded(target, input, name);
    }
    while started.elapsed() < time {
        let mut input = random.pick(&inputs).1.clone();
        for _ in 0..=random.below(6) {
            change(&mut input, &inputs, &mut random);
        }
        input.truncate(SIZE_LIMIT);
        guarded(target, &input, &format!("seed {seed}, run {runs}"));
        runs += 1;
    }
    println!("{}: {runs} runs in {} s, seed {seed}", corpus.display(), time.as_secs());
    ExitCode::SUCCESS
}

fn guarded(target: fn(&[u8]), input: &[u8], what: &str) {
    let started = Instant::now();
    let outcome = std::panic::catch_unwind(|| target(input));
    let slow = started.elapsed() > PATIENCE;
    if outcome.is_err() || slow {
        let directory = std::env::var_os(FINDINGS).map_or_else(std::env::temp_dir, PathBuf::from);
        let path = directory.join(format!("fuzz-{}", std::process::id()));
        let _ = fs::write(&path, input);
        let reason = if slow { "takes too long" } else { "panics" };
        eprintln!("{what}: {reason}; the input is in {}", path.display());
        std::process::exit(1);
    }
}

fn read(corpus: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), fs::read(path).expect("read the corpus"))).collect()
}

/// One random change: bits, bytes, lengths, pieces of other inputs, texts that have broken something somewhere.
fn change(input: &mut Vec<u8>, inputs: &[(String, Vec<u8>)], random: &mut Random) {
    let at = random.below(input.len() + 1);
    match random.below(10) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => {
            input[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'[', b',', b'\\'])
        }
        2 => input.truncate(at),
        3 => drop(input.drain(at..(at + random.below(16)).min(input.len()))),
        4 => {
            let piece = input[at..(at + random.below(64)).min(input.len())].to_vec();
            let place = random.below(input.len() + 1);
            input.splice(place..place, piece);
        }
        5 => {
            let other = &random.pick(inputs).1;
            let from = random.below(other.len() + 1);
            let piece = other[from..(from + random.below(200)).min(other.len())].to_vec();
            input.splice(at..(at + random.below(piece.len() + 1)).min(input.len()), piece);
        }
        6 if at + 4 <= input.len() => {
            let number: u32 =
                *random.pick(&[0, 1, 3, 4, 16, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]);
            input[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        7 => swap_token(input, random),
        _ => {
            let text = random.pick(TEXTS).as_bytes().to_vec();
            input.splice(at..at, text);
        }
    }
}

/// Replaces a word or number by another text.
fn swap_token(input: &mut Vec<u8>, random: &mut Random) {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b".:/-_".contains(byte);
    let start = random.below(input.len() + 1);
    let Some(from) = input[start..].iter().position(is_word).map(|offset| start + offset) else { return };
    let to = input[from..].iter().position(|byte| !is_word(byte)).map_or(input.len(), |offset| from + offset);
    input.splice(from..to, random.pick(TEXTS).bytes());
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// Names the directory for inputs that a target did not stand.
const FINDINGS: &str = "FUZZ_FINDINGS";
const SIZE_LIMIT: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(5);

const TEXTS: &[&str] = &[
    "",
    "null",
    "true",
    "-1",
    "0",
    "1",
    "4095",
    "65536",
    "70000",
    "1e999",
    "-9223372036854775808",
    "18446744073709551616",
    "{}",
    "[]",
    "[[]]",
    "\"\"",
    "..",
    "../..",
    "/",
    "::",
    "::1",
    "::ffff:1.2.3.4",
    "10.0.0.0/8",
    "10.0.0.0/33",
    "255.255.255.255/32",
    "fd00::/128",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/0",
    "0.0.0.0/0",
    "10.0.0.256",
    "\u{0}",
    "\r\n",
    "\u{feff}",
    "\\u0000",
    "\\ud800",
    "=",
    ";",
    "=;=",
    "0.1.0",
    "0.2.0",
    "0.3.0",
    "0.3.1",
    "0.4.0",
    "1.0.0",
    "1.1.0",
    "1.2.0",
    "ip4",
    "ip6",
    "cniVersion",
    "prevResult",
    "interface",
    "aa:bb:cc:dd:ee:ff",
    "--",
    "-j",
    "\"",
    "'",
    "\\",
];
