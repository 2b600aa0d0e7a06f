// SPDX-License-Identifier: Apache-2.0
//! Reading `resolv.conf(5)` into a result's DNS. Nothing in the file is checked: what it says is passed on.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cnibox_spec::Dns;

use crate::error::FileError;

/// The most that is read, in bytes: a path that names something endless must not hang ADD.
const LIMIT: u64 = 1 << 20;

/// Reads the file at `path`.
pub(crate) fn read(path: &Path) -> Result<Dns, FileError> {
    // A pipe that nobody writes to must not hang it either.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|source| FileError::new("open", path, source))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(FileError::new("read", path, ErrorKind::InvalidInput));
    }
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes).map_err(|source| FileError::new("read", path, source))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut fields = line.split_whitespace();
        let keyword = fields.next();
        let mut fields = fields.map(str::to_owned).peekable();
        if fields.peek().is_none() {
            continue;
        }
        match keyword {
            Some("nameserver") => dns.nameservers.extend(fields.next()),
            Some("domain") => dns.domain = fields.next().unwrap_or_default(),
            Some("search") => dns.search.extend(fields),
            Some("options") => dns.options.extend(fields),
            Some(_) | None => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_read() {
        let pipe = std::env::temp_dir().join(format!("cnibox-resolv-{}", std::process::id()));
        let _ = std::fs::remove_file(&pipe);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/")] {
            let refused = read(path).unwrap_err().to_string();
            assert!(refused.contains(&path.display().to_string()), "{refused}");
        }
        std::fs::remove_file(&pipe).unwrap();
        assert_eq!(read(Path::new("/proc/self/comm")).unwrap(), Dns::default());
    }

    #[test]
    fn lines_add_up_and_the_last_domain_wins() {
        let dns = parse(
            "# c\n; c\n\n  nameserver 1.1.1.1 ignored\nnameserver x\r\nnameserver\ndomain a\ndomain b c\n\
             search s1 s2\nsearch s3\noptions o1\toptions:2\nsortlist 1.2.3.4\nNAMESERVER 9.9.9.9\n",
        );
        assert_eq!(dns.nameservers, ["1.1.1.1", "x"]);
        assert_eq!(dns.domain, "b");
        assert_eq!(dns.search, ["s1", "s2", "s3"]);
        assert_eq!(dns.options, ["o1", "options:2"]);
    }

    #[test]
    fn a_missing_file_is_told_in_the_reference_words() {
        let error = read(Path::new("/nonexist")).unwrap_err();
        assert_eq!(error.to_string(), "open /nonexist: no such file or directory");
    }
}
