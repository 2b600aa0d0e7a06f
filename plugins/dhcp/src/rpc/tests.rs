// SPDX-License-Identifier: Apache-2.0
use std::thread;

use cnibox_spec::{CniResult, Dns, IpConfig, Route};

use super::*;

fn served(stream: &[u8]) -> (String, Result<(), CallError>) {
    let mut out = Vec::new();
    let outcome = serve(stream, &mut out, |_, _| Ok(Value::Struct(vec![])));
    (String::from_utf8_lossy(&out).into_owned(), outcome)
}

fn conversation(answer: impl FnMut(Method, &Value) -> Result<Value, String> + Send + 'static) -> Connection {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || serve(&theirs, &theirs, answer));
    let mut reader = BufReader::new(ours);
    reader.get_mut().write_all(b"CONNECT /_goRPC_ HTTP/1.0\n\n").unwrap();
    assert_eq!(read_head(&mut reader).unwrap(), "HTTP/1.0 200 Connected to Go RPC\n\n");
    Connection { reader, encoder: Encoder::default(), decoder: Decoder::new(MESSAGE_LIMIT) }
}

#[test]
fn a_call_and_its_result_arrive_as_they_were_sent() {
    let call = Value::of([
        ("ContainerID", Value::text("c")),
        ("Netns", Value::text("/n")),
        ("IfName", Value::text("eth0")),
        ("Args", Value::text("A=b")),
        ("StdinData", Value::Bytes(vec![0; 70_000])),
    ]);
    let route = Route {
        scope: Some(253),
        priority: 5,
        ..Route::new("10.0.0.0/8".parse().unwrap(), "0.0.0.0".parse().ok())
    };
    let result = CniResult {
        interfaces: vec![],
        ips: vec![IpConfig {
            interface: None,
            address: "10.1.2.3/24".parse().unwrap(),
            gateway: "10.1.2.1".parse().ok(),
        }],
        routes: vec![route, Route::new("0.0.0.0/0".parse().unwrap(), None)],
        dns: Dns {
            nameservers: vec!["1.1.1.1".into()],
            search: vec!["a".into(), "b".into()],
            ..Dns::default()
        },
    };
    let answered = result.clone();
    let mut client = conversation(move |method, argument| match method {
        Method::Allocate => {
            let texts = ["ContainerID", "Netns", "IfName", "Args"].map(|name| argument.text_field(name));
            assert_eq!(texts, ["c", "/n", "eth0", "A=b"]);
            assert_eq!(argument.bytes_field("StdinData"), [0; 70_000]);
            Ok(allocation_to(&answered))
        }
        Method::Release | Method::Collect => Err("no".to_owned()),
    });
    for _ in 0..2 {
        let reply = client.call(Method::Allocate, &call).unwrap();
        assert_eq!(allocation_from(&reply), Some(result.clone()));
        let error = client.call(Method::Release, &call).unwrap_err();
        assert_eq!(error.to_string(), "no");
    }
}

#[test]
fn nonsense_is_refused() {
    let (out, outcome) = served(b"GET /_goRPC_ HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(out.starts_with("HTTP/1.0 405 ") && outcome.is_ok());
    let (out, _) = served(b"GET / HTTP/1.1\n\n");
    assert!(out.starts_with("HTTP/1.0 404 "));
    let (_, outcome) = served(b"CONNECT /_goRPC_ HTTP/1.0\n\n\xff\xff");
    assert!(outcome.is_err());
    let endless = [b'a'; 10_000];
    assert!(served(&endless).0.starts_with("HTTP/1.0 404 "));
}

#[test]
fn methods_that_are_not_there_are_named_as_go_names_them() {
    assert_eq!(unknown("DHCP.Foo"), "rpc: can't find method DHCP.Foo");
    assert_eq!(unknown("Foo.Bar"), "rpc: can't find service Foo.Bar");
    assert_eq!(unknown("Foo"), "rpc: service/method request ill-formed: Foo");
}

#[test]
fn dialing_fails_in_gos_words() {
    let text = |path: &str| Connection::dial(path).err().unwrap();
    let error = text("/nonexistent/dhcp.sock");
    let want =
        "error dialing DHCP daemon: dial unix /nonexistent/dhcp.sock: connect: no such file or directory";
    assert_eq!((error.to_string().as_str(), error.is_absence()), (want, true));
    let long = format!("/{}", "x".repeat(200));
    assert!(text(&long).to_string().ends_with(": connect: invalid argument"));
}
