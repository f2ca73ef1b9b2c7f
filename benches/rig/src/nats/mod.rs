//! A small client of NATS JetStream: streams, acknowledged publishes, pull consumers.
//!
//! Owns the text protocol over one blocking socket. JetStream has no batches and no partitions: a
//! record is a message of its own that is acknowledged by itself, and what stands for a partition
//! is a stream with one subject. Every message and line is bounded in size, every wait in time.

pub mod publish;
pub mod pull;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, Result};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const RECEIVE_BYTES: usize = 256 << 10;
/// Above the server's max_payload of 1 MiB.
const MESSAGE_BYTES_MAX: usize = 2 << 20;
const LINE_BYTES_MAX: usize = 64 << 10;
const END: &[u8] = b"\r\n";
/// Subscriptions of callers have lower numbers.
const FIRST_CALL: u64 = 1 << 20;
/// Of a status without a body, for example that a pull has expired.
const NO_STATUS: u16 = 0;

/// A stream with one subject of the same name.
#[derive(Debug, Clone)]
pub struct Stream {
    pub name: String,
}

#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    calls: u32,
}

/// One message, lent from the receive buffer.
#[derive(Debug)]
pub struct Message<'a> {
    pub subject: &'a str,
    /// Of the subscription.
    pub sid: u64,
    /// Of headers without a body: what a pull came to. Zero where there is none.
    pub status: u16,
    pub payload: &'a [u8],
}

/// What arrived.
#[derive(Debug)]
pub enum Event<'a> {
    Message(Message<'a>),
    /// To be answered with `PONG`.
    Ping,
    Other,
}

impl Connection {
    /// Connects and waits until the server answers.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let io = || Error::io(format!("connect to {address}"));
        let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN).map_err(io())?;
        stream.set_nodelay(true).map_err(io())?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(io())?;
        stream.set_write_timeout(Some(ANSWER_WITHIN)).map_err(io())?;
        let buffer = vec![0; RECEIVE_BYTES];
        let mut connection = Connection { stream, buffer, start: 0, end: 0, calls: 0 };
        let hello = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "lang": "rig", "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "name": "rig",
        });
        connection.send(format!("CONNECT {hello}\r\nPING\r\n").as_bytes())?;
        while connection.line()? != "PONG" {}
        Ok(connection)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(Error::io("send to NATS"))
    }

    /// Under a number that the connection uses once.
    pub fn subscribe(&mut self, subject: &str, sid: u64) -> Result<()> {
        self.send(format!("SUB {subject} {sid}\r\n").as_bytes())
    }

    /// A request of the JetStream API.
    pub fn call(&mut self, api: &str, request: &Value) -> Result<Value> {
        self.calls += 1;
        let inbox = format!("_INBOX.api.{}.{}", self.port(), self.calls);
        let body = request.to_string();
        self.subscribe(&inbox, FIRST_CALL + u64::from(self.calls))?;
        let size = body.len();
        self.send(format!("PUB $JS.API.{api} {inbox} {size}\r\n{body}\r\n").as_bytes())?;
        loop {
            match self.receive()? {
                Event::Message(message) if message.subject == inbox => {
                    return answer(api, message.payload);
                }
                Event::Ping => self.send(b"PONG\r\n")?,
                Event::Message(_) | Event::Other => {}
            }
        }
    }

    pub fn create(&mut self, name: &str) -> Result<Stream> {
        let request = json!({
            "name": name, "subjects": [name], "retention": "limits", "storage": "file",
            "num_replicas": 1, "discard": "old",
        });
        self.call(&format!("STREAM.CREATE.{name}"), &request)?;
        Ok(Stream { name: name.to_owned() })
    }

    pub fn delete(&mut self, stream: &Stream) -> Result<()> {
        self.call(&format!("STREAM.DELETE.{}", stream.name), &json!({})).map(|_| ())
    }

    /// For names that no other connection has.
    pub fn port(&self) -> u16 {
        self.stream.local_addr().map_or(0, |address| address.port())
    }

    /// For a thread that only sends beside one that only receives.
    pub fn split(self) -> Result<(TcpStream, Self)> {
        let sender = self.stream.try_clone().map_err(Error::io("share a socket"))?;
        Ok((sender, self))
    }

    /// Whether more was received than has been taken.
    pub fn has_more(&self) -> bool {
        self.start < self.end
    }

    /// The next line or message; waits for it.
    pub fn receive(&mut self) -> Result<Event<'_>> {
        let line = self.line_end()?;
        let head = text(self.buffer.get(self.start..line))?;
        let mut words = head.split_ascii_whitespace();
        let word = words.next().unwrap_or_default();
        if word == "-ERR" {
            return Err(Error::Peer(head.to_owned()));
        }
        if word != "MSG" && word != "HMSG" {
            let ping = word == "PING";
            self.start = line + END.len();
            return Ok(if ping { Event::Ping } else { Event::Other });
        }
        let sizes = sizes(head).ok_or_else(|| Error::Unreadable(format!("NATS: {head}")))?;
        let subject_at = head.len() - head.trim_start_matches(word).trim_start().len();
        let body = line - self.start + END.len();
        let whole = body + sizes.total + END.len();
        self.need(whole)?;
        let from = self.start;
        self.start += whole;
        let bytes = self.buffer.get(from..from + whole).ok_or(Error::Closed)?;
        if !bytes.ends_with(END) {
            return Err(Error::Unreadable("the end of a NATS message".to_owned()));
        }
        let subject = text(bytes.get(subject_at..body))?;
        let mut words = subject.split_ascii_whitespace();
        let subject = words.next().unwrap_or_default();
        let sid = words.next().and_then(|sid| sid.parse().ok()).unwrap_or_default();
        let headers = bytes.get(body..body + sizes.headers).unwrap_or_default();
        let payload = bytes.get(body + sizes.headers..body + sizes.total).unwrap_or_default();
        Ok(Event::Message(Message { subject, sid, status: status(headers), payload }))
    }

    fn line(&mut self) -> Result<&str> {
        let end = self.line_end()?;
        let from = std::mem::replace(&mut self.start, end + END.len());
        text(self.buffer.get(from..end))
    }

    /// Where the line at the front ends.
    fn line_end(&mut self) -> Result<usize> {
        let mut looked = 0;
        loop {
            let received = self.buffer.get(self.start..self.end).unwrap_or_default();
            let rest = received.get(looked..).unwrap_or_default();
            if let Some(at) = rest.windows(END.len()).position(|two| two == END) {
                return Ok(self.start + looked + at);
            }
            if received.len() > LINE_BYTES_MAX {
                return Err(Error::Unreadable("a line of NATS without end".to_owned()));
            }
            looked = received.len().saturating_sub(1);
            self.fill(received.len() + 1)?;
        }
    }

    fn need(&mut self, bytes: usize) -> Result<()> {
        if bytes > MESSAGE_BYTES_MAX {
            return Err(Error::Unreadable(format!("a NATS message of {bytes} bytes")));
        }
        while self.end - self.start < bytes {
            self.fill(bytes)?;
        }
        Ok(())
    }

    /// Reads once, with room for so many in all.
    fn fill(&mut self, needed: usize) -> Result<()> {
        if self.buffer.len() - self.start < needed.max(LINE_BYTES_MAX) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = self.stream.read(room).map_err(Error::io("receive from NATS"))?;
        if read == 0 {
            return Err(Error::Closed);
        }
        self.end += read;
        Ok(())
    }
}

struct Sizes {
    headers: usize,
    total: usize,
}

/// Of `MSG subject sid [reply] total` and `HMSG subject sid [reply] headers total`.
fn sizes(head: &str) -> Option<Sizes> {
    let words: Vec<&str> = head.split_ascii_whitespace().collect();
    let size = |word: &&str| word.parse::<usize>().ok();
    let sizes = match *words.as_slice() {
        ["MSG", _, _, .., total] => Sizes { headers: 0, total: size(&total)? },
        ["HMSG", _, _, .., headers, total] => {
            Sizes { headers: size(&headers)?, total: size(&total)? }
        }
        _ => return None,
    };
    (sizes.headers <= sizes.total && sizes.total <= MESSAGE_BYTES_MAX).then_some(sizes)
}

/// Of headers that begin with `NATS/1.0 404 No Messages`.
fn status(headers: &[u8]) -> u16 {
    let line = headers.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let code = line.strip_prefix("NATS/1.0").and_then(|rest| rest.split_whitespace().next());
    code.and_then(|code| code.parse().ok()).unwrap_or(NO_STATUS)
}

fn text(bytes: Option<&[u8]>) -> Result<&str> {
    let text = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.ok_or_else(|| Error::Unreadable("a line of NATS".to_owned()))
}

fn answer(what: &str, payload: &[u8]) -> Result<Value> {
    let answer: Value = serde_json::from_slice(payload)
        .map_err(|error| Error::Unreadable(format!("NATS's answer to {what}: {error}")))?;
    match answer.get("error") {
        Some(error) => Err(Error::Peer(format!("{what}: {error}"))),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn heads_say_how_much_follows() {
        let of = |head: &str| sizes(head).map(|sizes| (sizes.headers, sizes.total));
        assert_eq!(of("MSG a 1 12"), Some((0, 12)));
        assert_eq!(of("MSG a 1 reply 12"), Some((0, 12)));
        assert_eq!(of("HMSG a 1 10 22"), Some((10, 22)));
        assert_eq!(of("HMSG a 1 reply 10 22"), Some((10, 22)));
        assert_eq!(of("HMSG a 1 30 22"), None);
        assert_eq!(of("MSG a 1 99999999999"), None);
        assert_eq!(of("MSG a"), None);
        assert_eq!(status(b"NATS/1.0 408 Request Timeout\r\n\r\n"), 408);
        assert_eq!(status(b"NATS/1.0\r\nName: x\r\n\r\n"), NO_STATUS);
    }

    #[test]
    fn messages_come_back_however_they_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let large = "x".repeat(400_000);
        let sent = format!(
            "INFO {{}}\r\nPONG\r\nMSG a.1 7 5\r\nhello\r\nPING\r\nHMSG b 1 c 27 27\r\nNATS/1.0 404 \
             No Message\r\n\r\n\r\nMSG c 1 {}\r\n{large}\r\n+OK\r\n",
            large.len()
        );
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for bytes in sent.as_bytes().chunks(3_001) {
                stream.write_all(bytes).unwrap();
            }
            stream
        });
        let mut connection = Connection::open(address).unwrap();
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(match connection.receive().unwrap() {
                Event::Message(m) => {
                    format!("{} {} {} {}", m.subject, m.sid, m.status, m.payload.len())
                }
                Event::Ping => "ping".to_owned(),
                Event::Other => "other".to_owned(),
            });
        }
        drop(server.join().unwrap());
        assert_eq!(seen, ["a.1 7 0 5", "ping", "b 1 404 0", "c 1 0 400000", "other"]);
        assert!(connection.receive().is_err());
    }
}
