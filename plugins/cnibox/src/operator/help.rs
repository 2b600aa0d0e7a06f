// SPDX-License-Identifier: Apache-2.0
//! What `cnibox` prints about itself.

/// The second line of the help. Its bytes are in every cnibox executable and nowhere else, which is how `install` and
/// `uninstall` know one.
pub(crate) const MARK: &str =
    "Every CNI reference plugin in one executable, and the tools to install and try them.";

/// The help, without the first line, which names the version.
pub(crate) const HELP: &str = "\
usage: cnibox COMMAND [ARGUMENTS]

as a plugin:
  cnibox PLUGIN             act as PLUGIN, as if called by that name

on this machine:
  list                      the plugins, one per line
  install DIR               put cnibox and one entry per plugin into DIR, usually /opt/cni/bin
      --symlink             entries are symbolic links to DIR/cnibox (default)
      --hardlink            entries are hard links to DIR/cnibox
      --copy                entries are copies
      --buildkit            also the names that BuildKit looks for, buildkit-cni-PLUGIN
      --force               also replace files that are no CNI plugins
      --dry-run             say what would be done
                            Every file is replaced in one step, so a runtime may call plugins meanwhile. What is
                            replaced is kept in DIR/.cnibox-replaced.
  uninstall DIR             remove cnibox's entries from DIR and put back what install replaced
      --dry-run             say what would be done
  doctor                    what this machine has of what plugins need: permission, kernel, packet filter, the
                            plugins in CNI_PATH, and STATUS of every network in NETCONFPATH; changes nothing

as a runtime (the command line and the environment of cnitool):
  add NETWORK NETNS         attach the namespace at the path NETNS to NETWORK and print the result; when it fails,
                            undo it
  check NETWORK NETNS       find out whether the attachment is still complete
  del NETWORK NETNS         detach the namespace
  status NETWORK            find out whether the network's plugins could attach something
  gc NETWORK                detach what was attached to NETWORK, was not detached and does not live, and say what it was
      --all                 whatever lives, too
      --dry-run             only say what would be detached
                            status and gc accept NETNS, too, and ignore it.

  NETCONFPATH               directory of network configurations, else /etc/cni/net.d
  CNI_PATH                  directories of plugins, separated by colons, else /opt/cni/bin
  CNI_IFNAME                interface to make in the container, else eth0
  CNI_ARGS                  KEY=VALUE pairs for the plugins, separated by semicolons
  CAP_ARGS                  JSON object with the values of capabilities, such as {\"portMappings\": [...]}

  add remembers configuration, arguments and result in /var/lib/cni/results; check, del and gc use those. CNI_ARGS and
  CAP_ARGS, when set, win over what is remembered.

  help, --help, -h          this text
  version, --version        the version

Exit status: 0 on success, 1 when something failed, 2 when the command line was wrong.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal_of_120_columns() {
        assert!(HELP.lines().all(|line| line.len() <= 120));
    }
}
