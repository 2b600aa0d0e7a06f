// SPDX-License-Identifier: Apache-2.0
//! Texts and combinations of the configuration.

use super::*;

fn trunk(min: Option<i64>, max: Option<i64>, id: Option<i64>) -> Result<Vec<u16>, String> {
    trunk_vlans(&[TrunkShape { min, max, id }]).map_err(|error| error.to_string())
}

#[test]
fn trunks_are_sorted_and_without_duplicates() {
    let entries = [
        TrunkShape { min: Some(5), max: Some(7), id: Some(1) },
        TrunkShape { min: None, max: None, id: Some(6) },
    ];
    assert_eq!(trunk_vlans(&entries).unwrap(), [1, 5, 6, 7]);
}

#[test]
fn trunk_errors_have_the_reference_texts() {
    assert_eq!(trunk(Some(0), Some(5), None).unwrap_err(), "incorrect trunk minID parameter");
    assert_eq!(trunk(Some(1), Some(4095), None).unwrap_err(), "incorrect trunk maxID parameter");
    assert_eq!(trunk(Some(9), Some(5), None).unwrap_err(), "minID is greater than maxID in trunk parameter");
    assert_eq!(
        trunk(None, Some(5), None).unwrap_err(),
        "minID and maxID should be configured simultaneously, minID is missing"
    );
    assert_eq!(
        trunk(Some(5), None, None).unwrap_err(),
        "minID and maxID should be configured simultaneously, maxID is missing"
    );
    assert_eq!(trunk(None, None, Some(4095)).unwrap_err(), "incorrect trunk id parameter");
}
