#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs tests on the host that this is started on, and notes what came of them in FOLDER.
#
#   usage: run.sh FOLDER
#
# A line of FOLDER/cells is NUMBER SECONDS PLUGINS PROGRAM [TEST]; NUMBER.log, .skips and .status are what it said, what it
# left out and how it ended.
set -u
folder=$1
uname -r >"$folder/kernel"
if [ -s "$folder/outside" ]; then sh -e "$folder/outside" || exit 1; fi
while read -r number seconds plugins program test; do
    CNIBOX_BIN=$plugins CNIBOX_SKIPS=$folder/$number.skips RUST_BACKTRACE=0 \
        timeout -k 5 "$seconds" "$program" ${test:+--exact "$test"} </dev/null >"$folder/$number.log" 2>&1
    echo $? >"$folder/$number.status"
done <"$folder/cells"
