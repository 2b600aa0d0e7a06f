// SPDX-License-Identifier: Apache-2.0
//! The bytes are what Go 1.26 writes for the same values.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn values(bytes: &[u8]) -> Result<Vec<Value>, GobError> {
    let mut decoder = Decoder::new(1 << 20);
    let mut from = bytes;
    let mut values = Vec::new();
    while let Some(value) = decoder.next(&mut from)? {
        values.push(value);
    }
    Ok(values)
}

#[test]
fn a_call_as_go_writes_it() {
    let read = values(&bytes(CALL)).unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].text_field("ServiceMethod"), "DHCP.Allocate");
    let text = |name| read[1].text_field(name);
    assert_eq!(
        [
            text("ContainerID"),
            text("Netns"),
            text("IfName"),
            text("Args"),
            text("Path"),
            text("NetnsOverride")
        ],
        ["c", "/n", "eth0", "A=B", "/p", ""]
    );
    assert_eq!(read[1].bytes_field("StdinData"), b"{}");
}

#[test]
fn a_reply_as_go_writes_it() {
    let read = values(&bytes(REPLY)).unwrap();
    assert_eq!(read[0].field("Seq"), Some(&Value::Uint(300)));
    let [ip] = read[1].list_field("IPs") else { panic!("{read:?}") };
    assert_eq!(ip.field("Address").unwrap().bytes_field("Mask"), [255, 255, 255, 0]);
    let [route] = read[1].list_field("Routes") else { panic!("{read:?}") };
    assert_eq!((route.int_field("Priority"), route.int_field("Scope")), (Some(100), Some(253)));
    assert_eq!(read[1].field("DNS").unwrap().texts_field("Nameservers"), ["1.1.1.1"]);
    let read = values(&bytes(ERROR)).unwrap();
    assert_eq!(read[0].text_field("Error"), "no more tries");
    assert_eq!(read[1], Value::Struct(vec![]));
}

#[test]
fn other_types_are_read_as_well() {
    let list = Value::List(vec![Value::Uint(1), Value::Uint(0)]);
    let read = values(&bytes(ODD)).unwrap();
    assert_eq!(read[1..], [list, Value::Uint(1 << 63), Value::Int(-129)]);
    let Value::List(map) = &read[0] else { panic!("{read:?}") };
    assert_eq!(map[0], Value::text("a"));
}

#[test]
fn what_is_written_is_read() {
    let inner = |number, bytes: &[u8]| {
        Value::of([("Number", Value::Int(number)), ("Bytes", Value::Bytes(bytes.to_vec()))])
    };
    let long = "x".repeat(300);
    let value = Value::of([
        ("Text", Value::text(&long)),
        ("List", Value::List(vec![inner(-1, b"b"), inner(i64::MIN, &[7; 128])])),
        ("Count", Value::Uint(u64::MAX)),
    ]);
    let mut encoder = Encoder::default();
    let mut stream = encoder.encode(&value);
    let first = stream.len();
    let zeroes = Value::of([
        ("Text", Value::text("")),
        ("List", Value::List(vec![inner(0, b"")])),
        ("Count", Value::Uint(0)),
    ]);
    stream.extend(encoder.encode(&zeroes));
    assert!(stream.len() < first + 8, "types are told once");
    stream.extend(encoder.encode(&Value::of([("Nobody knows of what", Value::List(vec![]))])));
    let nothing = || Value::Struct(vec![]);
    let zeroes = Value::of([("List", Value::List(vec![nothing()]))]);
    assert_eq!(values(&stream).unwrap(), [value, zeroes, nothing()]);
}

#[test]
fn damaged_streams_are_errors() {
    let good = bytes(REPLY);
    for end in 1..good.len() {
        // An end between two messages is one between two values, too, unless the type is new.
        let _ = values(&good[..end]);
    }
    for (at, _) in good.iter().enumerate() {
        for byte in [0, 1, 127, 200, 248, 255] {
            let mut bad = good.clone();
            bad[at] = byte;
            let _ = values(&bad);
        }
    }
    let endless = [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(values(&endless), Err(GobError::TooBig(u64::MAX))));
    assert!(matches!(values(&[3, 2]), Err(GobError::Io(_))));
    assert!(matches!(values(&[0x90]), Err(GobError::Malformed(_))));
    // A slice of a thousand billion empty structures, and a type that contains itself.
    assert!(values(&bytes(ERROR)[..20]).is_err());
    assert!(values(&bytes("0cff810201010102ff8201ff820000ff01")).is_err());
}

const CALL: &str = "\
    2e7f030101075265717565737401ff80000102010d536572766963654d6574686f64010c000103536571010600000012\
    ff80010d444843502e416c6c6f63617465006cff8103010107436d644172677301ff82000107010b436f6e7461696e65\
    724944010c0001054e65746e73010c00010649664e616d65010c00010441726773010c00010450617468010c00010d4e\
    65746e734f76657272696465010c000109537464696e44617461010a0000001dff8201016301022f6e01046574683001\
    03413d4201022f7002027b7d00";
const REPLY: &str = "\
    3aff8303010108526573706f6e736501ff84000103010d536572766963654d6574686f64010c00010353657101060001\
    054572726f72010c00000016ff84010d444843502e416c6c6f6361746501fe012c0051ff8503010106526573756c7401\
    ff86000105010a434e4956657273696f6e010c00010a496e746572666163657301ff8a00010349507301ff9000010652\
    6f7574657301ff94000103444e5301ff9600000024ff89020101155b5d2a74797065733130302e496e74657266616365\
    01ff8a0001ff8800004aff87030102ff8800010601044e616d65010c0001034d6163010c0001034d7475010400010753\
    616e64626f78010c00010a536f636b657450617468010c0001055063694944010c00000023ff8f020101145b5d2a7479\
    7065733130302e4950436f6e66696701ff900001ff8c000033ff8b030102ff8c0001030109496e746572666163650104\
    0001074164647265737301ff8e00010747617465776179010a00000023ff8d0301010549504e657401ff8e0001020102\
    4950010a0001044d61736b010a0000001dff930201010e5b5d2a74797065732e526f75746501ff940001ff92000050ff\
    91030102ff92000107010344737401ff8e0001024757010a0001034d545501040001064164764d535301040001085072\
    696f7269747901040001055461626c65010400010553636f7065010400000046ff9503010103444e5301ff9600010401\
    0b4e616d657365727665727301ff98000106446f6d61696e010c00010653656172636801ff980001074f7074696f6e73\
    01ff9800000016ff97020101085b5d737472696e6701ff9800010c000053ff8603010201040a0000050104ffffff0000\
    01040a0000010001010101040a0000000104ff00000000011000000000000000000000ffff0a00000103ffc802fe01fa\
    0001010107312e312e312e310101780000";
const ERROR: &str = "\
    3aff8303010108526573706f6e736501ff84000103010d536572766963654d6574686f64010c00010353657101060001\
    054572726f72010c00000020ff84010c444843502e52656c65617365020d6e6f206d6f7265207472696573000aff9903\
    0102ff9a00000003ff9a00";
const ODD: &str = "\
    0fff9d040102ff9e00010c01ff9c00000cff9b020102ff9c00010800000aff9e0001016101fef03f0eff9f010102ffa0\
    0001020104000006ffa0000201000b0600f88000000000000000050400fe0101";
