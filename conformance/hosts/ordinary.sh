#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command as RootlessKit does for an ordinary user: as the root of a user namespace that has a range of IDs, with a
# network, /run and /var/lib of its own. To be started by root, which has no part in it but to prepare what a host that
# lets users do so has: IDs to give, and tun devices for everybody.
#
#   usage: ordinary.sh [--nested] COMMAND [ARG...]     --nested: in a user namespace within that one
set -eu
inside='mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /var/lib; exec "$@"'
nested=
if [ "$1" = --nested ]; then
    shift
    nested='unshare --user --map-root-user --map-users=1,1,65535 --map-groups=1,1,65535 --net --mount'
fi
# shellcheck disable=SC2016,SC2086 # expanded in the namespace; a list of words
exec unshare --mount --propagation private sh -euc '
    mount -t tmpfs tmpfs /dev/net
    mknod -m 666 /dev/net/tun c 10 200
    printf "nobody:200000:65536\nroot:1:65535\n" >/dev/net/ids
    mount --bind /dev/net/ids /etc/subuid
    mount --bind /dev/net/ids /etc/subgid
    inside=$1
    shift
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \
        unshare --user --map-root-user --map-auto --net --mount --propagation private sh -euc "$inside" sh "$@"
' sh "$inside" $nested "$@"
