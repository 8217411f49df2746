//! What a server thinks: a target's answers, behind a handshake that is answered well.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::frame::Frame;
use crate::request::{Request, Script};

/// Which of a node's connections: redis-rs speaks RESP3 on the first and RESP2 on the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Commands,
    Subscriptions,
}

/// A request that a server must answer.
pub struct Ask<'a> {
    pub node: usize,
    /// Counted over all connections of the world.
    pub connection: usize,
    pub line: Line,
    pub request: &'a Request,
    pub outlet: &'a Outlet,
    /// Since the world began.
    pub at: Duration,
}

/// The servers of a world.
pub trait Brain: Send + 'static {
    /// A run of one of the lock's scripts.
    fn script(&mut self, ask: Ask<'_>, script: Script);

    /// A command on a line of subscriptions.
    fn subscription(&mut self, ask: Ask<'_>) {
        ask.outlet.send(&subscription_reply(ask.request));
    }

    /// The client connects to this address.
    fn dialled(&mut self, _address: &str) {}

    /// A command that asks a server about itself, after the handshake, or about others, at any time.
    fn question(&mut self, ask: Ask<'_>) {
        ask.outlet.send(&well(ask.node, ask.request).encode());
    }
}

/// The way back to the client.
#[derive(Clone)]
pub struct Outlet {
    pub(crate) queue: UnboundedSender<Out>,
}

pub(crate) enum Out {
    Bytes(Vec<u8>),
    Wait(Duration),
    Silence,
    Close,
}

impl Outlet {
    pub fn send(&self, bytes: &[u8]) {
        let _ = self.queue.send(Out::Bytes(bytes.to_vec()));
    }

    /// Nothing more is sent for a while.
    pub fn wait(&self, duration: Duration) {
        let _ = self.queue.send(Out::Wait(duration));
    }

    /// Nothing more is sent on this connection: answers come in the order of the requests, so one that never comes keeps back
    /// all others.
    pub fn fall_silent(&self) {
        let _ = self.queue.send(Out::Silence);
    }

    pub fn close(&self) {
        let _ = self.queue.send(Out::Close);
    }
}

/// How a good server answers what is asked of it besides scripts.
pub fn well(node: usize, request: &Request) -> Frame {
    let text = Frame::text;
    match request.word(0).to_uppercase().as_str() {
        "HELLO" => {
            Frame::Map(vec![(text("server"), text("redis")), (text("proto"), Frame::Int(3))])
        }
        "CLIENT" if request.word(1).eq_ignore_ascii_case("ID") => Frame::Int(4),
        "CLIENT" if request.word(1).eq_ignore_ascii_case("KILL") => Frame::Int(0),
        "INFO" if request.word(1) == "replication" => {
            text("role:master\r\nconnected_slaves:0\r\nmaster_replid:1\r\n")
        }
        "INFO" => Frame::text(&format!(
            "redis_version:7.0.15\r\nrun_id:{node:040x}\r\nuptime_in_seconds:100000\r\n"
        )),
        "CONFIG" => {
            let setting = request.word(2);
            let value = match setting.as_str() {
                "maxmemory-policy" => "noeviction",
                "maxmemory" => "0",
                "appendonly" => "yes",
                _ => "everysec",
            };
            Frame::Map(vec![(text(&setting), text(value))])
        }
        // It keeps no list of masters.
        "GET" => Frame::Nil,
        "TIME" => Frame::Array(vec![text("1700000000"), text("5")]),
        _ => Frame::Simple("OK".to_owned()),
    }
}

/// How a good server answers on a line of subscriptions.
pub fn subscription_reply(request: &Request) -> Vec<u8> {
    let list = |items: Vec<Frame>| Frame::Array(items).encode();
    let confirm = |verb: &str| {
        let confirmations = request.words[1..].iter().enumerate().map(|(index, channel)| {
            let count = Frame::Int(index as i64 + 1);
            list(vec![Frame::text(verb), Frame::Bulk(channel.clone()), count])
        });
        confirmations.collect::<Vec<_>>().concat()
    };
    match request.word(0).to_uppercase().as_str() {
        "SUBSCRIBE" => confirm("subscribe"),
        "UNSUBSCRIBE" => confirm("unsubscribe"),
        "PING" => list(vec![Frame::text("pong"), Frame::text("")]),
        _ => Frame::Simple("OK".to_owned()).encode(),
    }
}

/// A message on a channel, as RESP2 has it.
pub fn message(channel: &[u8], payload: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| Frame::Bulk(bytes.to_vec());
    Frame::Array(vec![text(b"message"), text(channel), text(payload)]).encode()
}

/// For how long clients have known a good server.
pub const KNOWN_FOR: Duration = Duration::from_secs(100_000);

/// How a good server answers a script where the lock is free, and then held by who asks.
pub fn willing(script: Script) -> Frame {
    let zero = Frame::Int(0);
    match script {
        Script::Acquire => Frame::Int(1_700_000_000_000_000),
        Script::Renew
        | Script::Release
        | Script::Raise
        | Script::Reclaim
        | Script::Force
        | Script::Note
        | Script::ForgetNotes => Frame::Int(1),
        // Then each is renewed by itself.
        Script::RenewTogether => Frame::Error("ERR not together".to_owned()),
        Script::Status => {
            Frame::Array(vec![Frame::Int(-2), Frame::Nil, Frame::Nil, Frame::Nil, zero])
        }
        Script::Mark => {
            let now: i64 = 1_700_000_000_000_000;
            Frame::Array(vec![Frame::Int(now - KNOWN_FOR.as_micros() as i64), Frame::Int(now)])
        }
        Script::Preflight | Script::ReadNotes => Frame::Array(Vec::new()),
    }
}
