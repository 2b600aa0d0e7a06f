// SPDX-License-Identifier: Apache-2.0
//! Puts cnibox into a directory of plugins and takes it out again, on a node where a runtime may call a plugin at any
//! moment: every name always leads to a complete executable, because each is replaced by one rename. Nothing is
//! changed before everything has been looked at, and nothing that is replaced is lost.

mod found;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempPath;

use found::Found;

/// How a plugin's entry leads to the executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// `bridge -> cnibox`.
    #[default]
    Symlink,
    /// A second name of the same file.
    Hardlink,
    /// A file of its own.
    Copy,
}

/// What to install, and how.
#[derive(Clone, Debug)]
pub(crate) struct Install<'a> {
    /// The directory; made when missing.
    pub(crate) dir: &'a Path,
    /// The executable to install.
    pub(crate) source: &'a Path,
    /// The entries' names.
    pub(crate) names: Vec<String>,
    /// What the entries are.
    pub(crate) form: Form,
    /// Whether to replace what is no plugin.
    pub(crate) force: bool,
    /// Whether to say only what would be done.
    pub(crate) dry_run: bool,
}

impl Install<'_> {
    /// Installs, or refuses with everything as it was. Tells `out` about each entry.
    ///
    /// # Errors
    /// When something in the way is no plugin, naming all of it; when a file cannot be written: entries done until
    /// then stay, each of them complete.
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<()> {
        let names = std::iter::once(BINARY).chain(self.names.iter().map(String::as_str));
        let found = names.map(|name| Ok((name, found::look(self.dir, name)?))).collect::<Result<Vec<_>>>()?;
        self.refuse(&found)?;
        if !self.dry_run {
            make_dir(self.dir, 0o755)?;
        }
        for (name, found) in &found {
            let kept = found.is_worth_keeping();
            if !self.dry_run {
                if kept {
                    keep(self.dir, name)?;
                }
                self.put(name)?;
            }
            writeln!(out, "{}", self.told(name, found))?;
        }
        if self.dry_run { Ok(()) } else { Ok(File::open(self.dir)?.sync_all()?) }
    }

    fn refuse(&self, found: &[(&str, Found)]) -> Result<()> {
        let in_the_way = |(name, found): &(&str, Found)| {
            let reason = found.reason_to_refuse(self.force)?;
            Some(format!("{}: {reason}", self.dir.join(name).display()))
        };
        let reasons: Vec<_> = found.iter().filter_map(in_the_way).collect();
        if reasons.is_empty() {
            return Ok(());
        }
        let hint = if self.force { "" } else { "\n--force replaces files that are no plugins" };
        bail!("nothing was changed, because of\n{}{hint}", reasons.join("\n"))
    }

    /// Puts one entry in place; the binary comes first, so that the others have something to lead to.
    fn put(&self, name: &str) -> Result<()> {
        let target = self.dir.join(name);
        let binary = self.dir.join(BINARY);
        if name == BINARY && same_file(self.source, &binary) {
            return Ok(());
        }
        let form = if name == BINARY { Form::Copy } else { self.form };
        let new = tempfile::Builder::new().prefix(".cnibox-").make_in(self.dir, |path| match form {
            Form::Symlink => symlink(BINARY, path),
            Form::Hardlink => fs::hard_link(&binary, path),
            Form::Copy => copy_executable(self.source, path),
        });
        let new = new.map(tempfile::NamedTempFile::into_temp_path);
        let new = new.with_context(|| format!("make {}", target.display()))?;
        rename(new, &target)
    }

    fn told(&self, name: &str, found: &Found) -> String {
        let target = self.dir.join(name).display().to_string();
        let form = match self.form {
            _ if name == BINARY => "",
            Form::Symlink => " -> cnibox",
            Form::Hardlink => " = cnibox",
            Form::Copy => "",
        };
        let kept = if found.is_worth_keeping() { format!(", old one kept in {KEPT}") } else { String::new() };
        format!("{target}{form} ({found}{kept})")
    }
}

/// Removes cnibox's entries of these names from `dir`, and puts back what [`Install::run`] replaced. Whatever else has
/// one of the names is left alone; `out` is told.
///
/// # Errors
/// When an entry cannot be looked at, removed or put back.
pub(crate) fn uninstall(dir: &Path, names: &[String], dry_run: bool, out: &mut dyn Write) -> Result<()> {
    // The binary last: until then its links must lead somewhere.
    for name in names.iter().map(String::as_str).chain([BINARY]) {
        let told = match found::look(dir, name)? {
            Found::Nothing => continue,
            Found::Cnibox => take_out(dir, name, dry_run)?,
            Found::Plugin | Found::NoPlugin(_) | Found::Directory => "left alone: not cnibox's",
        };
        writeln!(out, "{} ({told})", dir.join(name).display())?;
    }
    if dry_run {
        return Ok(());
    }
    // Fails when something is left in there, which is then still wanted.
    let _ = fs::remove_dir(dir.join(KEPT));
    Ok(File::open(dir)?.sync_all()?)
}

fn take_out(dir: &Path, name: &str, dry_run: bool) -> Result<&'static str> {
    let (entry, kept) = (dir.join(name), dir.join(KEPT).join(name));
    let has_kept = kept.symlink_metadata().is_ok();
    let done = match (dry_run, has_kept) {
        (true, _) => Ok(()),
        (false, true) => fs::rename(&kept, &entry),
        (false, false) => fs::remove_file(&entry),
    };
    done.with_context(|| format!("remove {}", entry.display()))?;
    Ok(if has_kept { "the old one is back" } else { "removed" })
}

/// The executable's name in the directory of plugins.
pub(crate) const BINARY: &str = "cnibox";
/// Where replaced files are kept. Inside the directory, so that moving them back is one rename.
pub(crate) const KEPT: &str = ".cnibox-replaced";

/// Gives the file a second name in the folder of replaced ones; the first stays until it is replaced.
fn keep(dir: &Path, name: &str) -> Result<()> {
    let folder = dir.join(KEPT);
    make_dir(&folder, 0o700)?;
    let (entry, kept) = (dir.join(name), folder.join(name));
    let second =
        tempfile::Builder::new().prefix(".cnibox-").make_in(&folder, |path| second_name(&entry, path));
    let second = second.with_context(|| format!("keep {}", entry.display()))?;
    rename(second.into_temp_path(), &kept)
}

/// A hard link; on file systems without them a copy. Links are not followed.
fn second_name(entry: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(entry, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) if entry.is_symlink() => symlink(fs::read_link(entry)?, path),
        Err(_) => copy_executable(entry, path),
        Ok(()) => Ok(()),
    }
}

/// Copies to a new file that can be executed and is on disk when this returns. Nobody else may write to it before, either,
/// whatever the umask.
fn copy_executable(source: &Path, path: &Path) -> io::Result<()> {
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = io::copy(&mut File::open(source)?, &mut new)
        .and_then(|_| new.set_permissions(fs::Permissions::from_mode(0o755)))
        .and_then(|()| new.sync_all());
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

fn rename(new: TempPath, target: &Path) -> Result<()> {
    let path = new.to_path_buf();
    let done = new.persist(target).map_err(|error| error.error);
    done.with_context(|| format!("replace {}", target.display()))?;
    // Renaming one name of a file to another name of the same file leaves both (rename(2)).
    let _ = fs::remove_file(path);
    Ok(())
}

/// Makes a directory with exactly this mode, whatever the umask; an existing one is left as it is.
fn make_dir(dir: &Path, mode: u32) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(dir);
    made.and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("make {}", dir.display()))
}

fn same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((identity(a), identity(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether the plugin `name` in `dir` is cnibox's; `None` when there is none.
///
/// # Errors
/// When it is there but cannot be read.
pub(crate) fn what_is(dir: &Path, name: &str) -> Result<Option<bool>> {
    let found = found::look(dir, name)?;
    Ok((found != Found::Nothing).then_some(found == Found::Cnibox))
}

/// The executable that runs now, by a path that stays right when its file is replaced.
pub(crate) fn this_executable() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

#[cfg(test)]
mod tests;
