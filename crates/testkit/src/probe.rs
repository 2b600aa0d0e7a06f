// SPDX-License-Identifier: Apache-2.0
//! Packets through the network under test: tiny servers and clients inside namespaces.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cnibox_netns::NetNs;

/// A running server; stops when dropped. It answers every client with the address it sees the client at.
#[derive(Debug)]
pub struct Server {
    /// The address it listens at.
    pub addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Runs `work` on a thread of its own inside a namespace.
///
/// # Panics
/// If the namespace cannot be entered, or `work` panics.
pub fn in_netns<T: Send>(netns: &NetNs, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = || netns.run(work).expect("enter the namespace");
        scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Listens for TCP inside a namespace.
///
/// # Panics
/// If the address cannot be bound.
pub fn serve_tcp(netns: &NetNs, addr: SocketAddr) -> Server {
    let listener = in_netns(netns, || bound(addr, || TcpListener::bind(addr)));
    let addr = listener.local_addr().expect("address of the listener");
    // A socket stays in the namespace it was made in, so the thread need not enter it.
    Server::start(addr, move |stop| {
        listener.set_nonblocking(true).expect("non-blocking listener");
        while !stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((mut stream, peer)) => drop(stream.write_all(peer.ip().to_string().as_bytes())),
                Err(_) => std::thread::sleep(TICK),
            }
        }
    })
}

/// Listens for UDP inside a namespace.
///
/// # Panics
/// If the address cannot be bound.
pub fn serve_udp(netns: &NetNs, addr: SocketAddr) -> Server {
    let socket = in_netns(netns, || bound(addr, || UdpSocket::bind(addr)));
    socket.set_read_timeout(Some(TICK)).expect("timeout");
    let addr = socket.local_addr().expect("address of the socket");
    Server::start(addr, move |stop| {
        let mut buffer = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                // The client will notice a lost answer.
                let _ = socket.send_to(peer.ip().to_string().as_bytes(), peer);
            }
        }
    })
}

/// A socket bound to `addr`. A child that another test's thread has forked holds a server that was just closed until it
/// executes its program.
fn bound<T>(addr: SocketAddr, bind: impl Fn() -> io::Result<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match bind() {
            Ok(socket) => return socket,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(TICK);
            }
            Err(error) => panic!("bind {addr}: {error}"),
        }
    }
}

/// Connects by TCP from inside a namespace and returns the address that the server sees.
///
/// # Errors
/// No connection or no answer within two seconds.
pub fn ask_tcp(netns: &NetNs, addr: SocketAddr) -> io::Result<IpAddr> {
    in_netns(netns, || {
        let mut stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        parsed(&answer)
    })
}

/// Sends a UDP packet from inside a namespace and returns the address that the server sees.
///
/// # Errors
/// No answer within two seconds, in which three packets are sent.
pub fn ask_udp(netns: &NetNs, addr: SocketAddr) -> io::Result<IpAddr> {
    in_netns(netns, || {
        let any =
            if addr.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE / 3))?;
        let mut buffer = [0; 64];
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for _ in 0..3 {
            socket.send(b"?")?;
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    return parsed(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    })
}

/// Whether an echo request from inside a namespace is answered within two seconds.
///
/// # Panics
/// If there is no `ping` command.
pub fn ping(netns: &NetNs, ip: IpAddr) -> bool {
    let output = netns
        .run(|| Command::new("ping").args(["-n", "-c", "1", "-W", "2", &ip.to_string()]).output())
        .expect("enter the namespace");
    output.expect("start ping").status.success()
}

impl Server {
    fn start(addr: SocketAddr, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || work(&stop)
        });
        Self { addr, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the server already made its clients fail.
            let _ = thread.join();
        }
    }
}

fn parsed(answer: &str) -> io::Result<IpAddr> {
    answer.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{answer:?}: {error}")))
}

const PATIENCE: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(20);
