// SPDX-License-Identifier: Apache-2.0
//! The CNI execution protocol: environment and stdin in, one JSON document and an exit code out
