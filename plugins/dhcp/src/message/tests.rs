// SPDX-License-Identifier: Apache-2.0
use dhcproto::{Decodable, Decoder};

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn client(provide: &[(u8, &str)], request: &[u8], broadcast: bool) -> Client {
    let provide = provide.iter().map(|(code, value)| (*code, (*value).to_owned())).collect();
    Client::new("c/n/eth0", Options { provide, request: request.to_vec() }, broadcast)
}

fn read(message: &Outgoing) -> Message {
    Message::decode(&mut Decoder::new(&message.bytes)).unwrap()
}

fn server(kind: MessageType, xid: u32, options: &[DhcpOption]) -> Vec<u8> {
    let mut message = Message::default();
    message.set_opcode(Opcode::BootReply).set_xid(xid).set_chaddr(&MAC).set_yiaddr([10, 0, 0, 9]);
    message.opts_mut().insert(DhcpOption::MessageType(kind));
    for option in options {
        message.opts_mut().insert(option.clone());
    }
    message.to_vec().unwrap()
}

#[test]
fn the_client_is_named_by_the_attachment() {
    let message = read(&client(&[], &[], false).ask(MAC, Ask::Discover(None)).unwrap());
    let id = DhcpOption::ClientIdentifier(b"\0c/n/eth0".to_vec());
    assert_eq!(message.opts().get(OptionCode::ClientIdentifier), Some(&id));
    assert_eq!(message.chaddr(), MAC);
    let long = Client::new(&"x".repeat(300), Options::default(), false);
    assert_eq!(long.id.len(), 255);
}

#[test]
fn options_of_the_configuration_replace_ours() {
    let client = client(&[(61, "mine"), (12, "a"), (12, "b"), (0, "x"), (255, "x")], &[3, 26], false);
    let message = read(&client.ask(MAC, Ask::Discover(None)).unwrap());
    let options = message.opts();
    assert_eq!(
        options.get(OptionCode::ClientIdentifier),
        Some(&DhcpOption::ClientIdentifier(b"mine".to_vec()))
    );
    assert_eq!(options.get(OptionCode::Hostname), Some(&DhcpOption::Hostname("b".into())));
    let wanted = DhcpOption::ParameterRequestList(vec![OptionCode::Router, OptionCode::InterfaceMtu]);
    assert_eq!(options.get(OptionCode::ParameterRequestList), Some(&wanted));
    assert_eq!(options.len(), 5);
}

#[test]
fn every_question_has_its_form() {
    let client = client(&[], &[], true);
    let address = Ipv4Addr::new(10, 0, 0, 9);
    let sid = Ipv4Addr::new(10, 0, 0, 1);
    let bytes = server(MessageType::Offer, 7, &[DhcpOption::ServerIdentifier(sid)]);
    let offer = Answer::read(&bytes, 7, MAC, None).unwrap();
    let form = |ask| {
        let message = read(&client.ask(MAC, ask).unwrap());
        let options = message.opts();
        let has = |code| options.contains(code);
        let kind = options.msg_type().unwrap();
        let named = [has(OptionCode::RequestedIpAddress), has(OptionCode::ServerIdentifier)];
        (kind, named, message.ciaddr(), message.flags().broadcast())
    };
    let none = Ipv4Addr::UNSPECIFIED;
    assert_eq!(form(Ask::Discover(None)), (MessageType::Discover, [false, false], none, true));
    assert_eq!(form(Ask::Discover(Some(address))), (MessageType::Discover, [true, false], none, true));
    assert_eq!(form(Ask::Select(&offer)), (MessageType::Request, [true, true], none, true));
    assert_eq!(form(Ask::Reboot(address)), (MessageType::Request, [true, false], none, true));
    assert_eq!(form(Ask::Extend(address)), (MessageType::Request, [false, false], address, false));
    assert!(client.ask(MAC, Ask::Discover(None)).unwrap().bytes.len() >= 300);
}

#[test]
fn a_request_continues_the_exchange_of_its_offer() {
    let bytes = server(MessageType::Offer, 7, &[]);
    let offer = Answer::read(&bytes, 7, MAC, None).unwrap();
    let select = client(&[], &[], false).ask(MAC, Ask::Select(&offer)).unwrap();
    assert_eq!((select.xid, read(&select).xid()), (7, 7));
}

#[test]
fn only_answers_to_the_question_are_read() {
    let bytes = server(MessageType::Nak, 7, &[DhcpOption::Message("no".into())]);
    let answer = Answer::read(&bytes, 7, MAC, Some([9; 6])).unwrap();
    assert_eq!((answer.kind, answer.text.as_str(), answer.lease.hop), (MessageType::Nak, "no", Some([9; 6])));
    assert!(Answer::read(&bytes, 8, MAC, None).is_none());
    assert!(Answer::read(&bytes, 7, [3; 6], None).is_none());
    let mut question = bytes.clone();
    question[0] = 1;
    assert!(Answer::read(&question, 7, MAC, None).is_none());
    let mut long = bytes.clone();
    long[2] = 255;
    assert!(Answer::read(&long, 7, MAC, None).is_none());
    for end in 0..bytes.len() {
        let _ = Answer::read(&bytes[..end], 7, MAC, None);
    }
}

#[test]
fn a_damaged_option_is_an_absent_one() {
    let mut bytes = server(MessageType::Ack, 7, &[DhcpOption::SubnetMask(Ipv4Addr::new(255, 0, 0, 0))]);
    let at = bytes.windows(2).position(|pair| pair == [1, 4]).unwrap();
    bytes.splice(at..at + 6, [1, 3, 255, 0, 0]);
    let answer = Answer::read(&bytes, 7, MAC, None).unwrap();
    assert_eq!(answer.kind, MessageType::Ack);
    assert_eq!(answer.lease.network().unwrap_err(), "DHCP option Subnet Mask not found in DHCPACK");
}
