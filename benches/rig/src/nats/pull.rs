//! A consumer that follows streams by pulling, one connection for several of them.
//!
//! Each stream has a pull consumer of its own without acknowledgements, which would be further
//! messages. So many are asked for at once, and as many again when half of them have come, so
//! that the server never waits for the client. A message's first bytes are its number, which says
//! when it was due.

use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde_json::json;

use super::publish::{DIGITS, Shared};
use super::{Connection, Event, NO_STATUS, Stream};
use crate::error::{Error, Result};
use crate::latency::{Pace, new_histogram};

/// Messages asked for at once, of each stream.
const PULL: u64 = 2_000;
const EXPIRES_NANOS: u64 = 30_000_000_000;
const INACTIVE_NANOS: u64 = 300_000_000_000;
/// Of a pull that ended: no messages, expired, or its batch is complete.
const ENDED: [u16; 3] = [404, 408, 409];

#[derive(Debug)]
pub struct Follower {
    connection: Connection,
    /// By the number of its subscription.
    streams: Vec<Following>,
    inbox: String,
}

#[derive(Debug)]
struct Following {
    pull: String,
    /// Asked for and not come yet.
    open: u64,
}

impl Follower {
    pub fn open(at: SocketAddr, streams: &[&Stream]) -> Result<Self> {
        let mut connection = Connection::open(at)?;
        let inbox = format!("_INBOX.pull.{}", connection.port());
        let mut followed = Vec::new();
        for (sid, stream) in (0..).zip(streams) {
            let (stream, consumer) = (&stream.name, format!("follower{sid}"));
            connection.subscribe(&format!("{inbox}.{sid}"), sid)?;
            let request = json!({
                "stream_name": stream,
                "config": {
                    "name": consumer, "deliver_policy": "all", "ack_policy": "none",
                    "inactive_threshold": INACTIVE_NANOS, "max_waiting": 16,
                },
            });
            connection.call(&format!("CONSUMER.CREATE.{stream}.{consumer}"), &request)?;
            let pull = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
            followed.push(Following { pull, open: 0 });
        }
        let mut follower = Follower { connection, streams: followed, inbox };
        for sid in 0..follower.streams.len() {
            follower.ask(sid, PULL)?;
        }
        Ok(follower)
    }

    fn ask(&mut self, sid: usize, batch: u64) -> Result<()> {
        let Some(following) = self.streams.get_mut(sid) else { return Ok(()) };
        following.open += batch;
        let body = json!({ "batch": batch, "expires": EXPIRES_NANOS }).to_string();
        let (pull, size) = (&following.pull, body.len());
        let request = format!("PUB {pull} {}.{sid} {size}\r\n{body}\r\n", self.inbox);
        self.connection.send(request.as_bytes())
    }

    /// Until every message of the lane has come, or a thread of it has failed.
    pub fn follow(&mut self, pace: &Pace, lane: usize, shared: &Shared) -> Result<Histogram<u64>> {
        let mut histogram = new_histogram()?;
        let mut arrived = 0;
        while arrived < pace.count && !shared.failed() {
            let message = match self.connection.receive()? {
                Event::Message(message) => message,
                Event::Ping => {
                    self.connection.send(b"PONG\r\n")?;
                    continue;
                }
                Event::Other => continue,
            };
            let (sid, status) =
                (usize::try_from(message.sid).unwrap_or(usize::MAX), message.status);
            if status == NO_STATUS {
                pace.record(lane, number(message.payload)?, &mut histogram);
                arrived += 1;
            } else if !ENDED.contains(&status) {
                return Err(Error::Peer(format!("pull: status {status}")));
            }
            let Some(following) = self.streams.get_mut(sid) else { continue };
            following.open = if status == NO_STATUS { following.open.saturating_sub(1) } else { 0 };
            if following.open <= PULL / 2 {
                self.ask(sid, PULL / 2)?;
            }
        }
        Ok(histogram)
    }
}

fn number(payload: &[u8]) -> Result<u64> {
    let digits = payload.get(..DIGITS).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Error::Unreadable("the number of a NATS message".to_owned()))
}
