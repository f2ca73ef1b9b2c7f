//! The admin listener: just enough HTTP/1.1 for a scraper and a health check. Lives on shard 0.
//!
//! | request | answer |
//! |---|---|
//! | `GET /metrics` | Prometheus text of all shards; 503 while the broker starts |
//! | `GET /ready` | 200 when no partition is being opened; 503 with how many are left before that |
//! | `GET /live` | 200 as long as shard 0 runs |
//!
//! Partitions that are offline do not make the broker unready: one failed disk must not take all
//! others out of service. `/ready` names their number, for people; `corelane_partitions_offline` is
//! for alerts.
//!
//! One request a connection, bounded in bytes, headers and time; a connection beyond the bound
//! waits in the kernel's queue. It changes nothing, and no client request ever waits for it.

use std::io::ErrorKind::AddrInUse;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reactor::sync::Semaphore;
use reactor::{TcpListener, TcpStream};
use tracing::{debug, info, warn};

use super::logs::{OFFLINE, OPENING};
use super::{Metrics, gather};
use crate::BrokerError;
use crate::shard::Shard;

/// Without a port of its own the listener takes that of shard 0 and this: behind all shards.
const PORT_DISTANCE: u16 = 1000;
/// A scraper's head has a few hundred bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 16;
/// For a head to arrive, and once more for an answer to be taken.
const IO_WAIT: Duration = Duration::from_secs(10);
/// For the client to close after our answer; then we do.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
const PORT_WAIT: Duration = Duration::from_secs(3);
const PORT_RETRY: Duration = Duration::from_millis(50);
const BACKLOG: u32 = 64;
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// `admin.port` for "behind the shards" and for "not at all".
const PORT_AUTOMATIC: i32 = -1;
const PORT_OFF: i32 = 0;

/// Starts the listener if it is wanted; it ends with the shard.
///
/// # Errors
/// The configured address cannot be had. A port that nobody asked for is done without.
pub(crate) async fn start(shard: &Rc<Shard>, base_port: u16) -> Result<(), BrokerError> {
    let config = shard.config();
    if config.admin_port == PORT_OFF {
        return Ok(());
    }
    let automatic = config.admin_port == PORT_AUTOMATIC;
    let port = u16::try_from(config.admin_port).unwrap_or_else(|_| {
        base_port.checked_add(PORT_DISTANCE).unwrap_or(base_port - PORT_DISTANCE)
    });
    let host = config.admin_host.clone();
    let shard = shard.clone();
    if !automatic {
        let listener = bind_patiently(&host, port).await;
        let listener =
            listener.map_err(|(address, source)| BrokerError::AdminListen { address, source })?;
        reactor::spawn(accept(shard, listener)).detach();
        return Ok(());
    }
    reactor::spawn(async move {
        match bind_patiently(&host, port).await {
            Ok(listener) => accept(shard, listener).await,
            Err((address, error)) => {
                warn!("no metrics: cannot listen on {address}: {error}; choose an --admin-port");
            }
        }
    })
    .detach();
    Ok(())
}

/// The port of a process that was killed is free only after a moment.
async fn bind_patiently(host: &str, port: u16) -> Result<TcpListener, (String, std::io::Error)> {
    let give_up = reactor::now() + PORT_WAIT;
    loop {
        match bind(host, port).await {
            Err((_, error)) if error.kind() == AddrInUse && reactor::now() < give_up => {
                reactor::sleep(PORT_RETRY).await;
            }
            bound => return bound,
        }
    }
}

async fn bind(host: &str, port: u16) -> Result<TcpListener, (String, std::io::Error)> {
    let failed = |source| (format!("{host}:{port}"), source);
    let address = match host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, port),
        Err(_) => {
            let found = reactor::net::resolve(host, port).await.map_err(failed)?;
            // A name with both kinds is `localhost` mostly, and scrapers try IPv4.
            let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
            *best.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?
        }
    };
    TcpListener::bind(address, BACKLOG).map_err(failed)
}

async fn accept(shard: Rc<Shard>, listener: TcpListener) {
    info!("metrics on http://{}/metrics", listener.local_addr());
    let places = Semaphore::new(CONNECTIONS_MAX);
    loop {
        let place = places.acquire(1).await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!("admin accept failed: {error}; trying again");
                reactor::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let shard = shard.clone();
        reactor::spawn(async move {
            serve(&shard, &stream).await;
            stream.shutdown();
            drop(place);
        })
        .detach();
    }
}

async fn serve(shard: &Rc<Shard>, stream: &TcpStream) {
    let answer = match reactor::timeout(IO_WAIT, read_request(stream)).await {
        Ok(Ok(Some(request))) => respond(shard, &request).await,
        Ok(Ok(None)) => return,
        Ok(Err(refusal)) => refusal,
        Err(_) => Answer::text("408 Request Timeout", "no request came\n"),
    };
    // A client that leaves before its answer is nobody's fault.
    let Ok(Ok(())) = reactor::timeout(IO_WAIT, stream.write_all(answer.into_pieces())).await else {
        return;
    };
    // Closing while bytes of the client are unread would throw the answer away.
    stream.finish_writes();
    let _ = reactor::timeout(CLOSE_WAIT, drain(stream)).await;
}

async fn drain(stream: &TcpStream) {
    let mut buffer = BytesMut::new();
    loop {
        let (read, mut back) = stream.read(buffer).await;
        back.clear();
        buffer = back;
        if !matches!(read, Ok(more) if more > 0) {
            return;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    method: String,
    /// Without the query.
    path: String,
}

/// `None` if the client left without a request.
async fn read_request(stream: &TcpStream) -> Result<Option<Request>, Answer> {
    let mut head = BytesMut::with_capacity(HEAD_BYTES_MAX);
    loop {
        let (read, back) = stream.read(head).await;
        head = back;
        match read {
            Ok(more) if more > 0 => {}
            Ok(_) | Err(_) => return Ok(None),
        }
        if let Some(request) = parse(&head)? {
            return Ok(Some(request));
        }
        if head.len() >= HEAD_BYTES_MAX {
            return Err(Answer::text("431 Request Header Fields Too Large", "head too large\n"));
        }
    }
}

/// `None` while the head is incomplete.
fn parse(head: &[u8]) -> Result<Option<Request>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
            let method = request.method.unwrap_or_default().to_owned();
            Ok(Some(Request { method, path: path.to_owned() }))
        }
        Err(httparse::Error::TooManyHeaders) => {
            Err(Answer::text("431 Request Header Fields Too Large", "too many headers\n"))
        }
        Err(error) => Err(Answer::text("400 Bad Request", &format!("{error}\n"))),
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    headers: &'static str,
    body: String,
    /// The answer to a HEAD has a length and no body.
    without_body: bool,
}

const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";
const PROMETHEUS: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n";

impl Answer {
    fn text(status: &'static str, body: &str) -> Self {
        Answer { status, headers: TEXT, body: body.to_owned(), without_body: false }
    }

    fn into_pieces(self) -> Vec<Bytes> {
        let (status, headers, length) = (self.status, self.headers, self.body.len());
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        let body = if self.without_body { String::new() } else { self.body };
        vec![head.into(), body.into()]
    }
}

async fn respond(shard: &Rc<Shard>, request: &Request) -> Answer {
    let without_body = match request.method.as_str() {
        "GET" => false,
        "HEAD" => true,
        _ => {
            let refused = Answer::text("405 Method Not Allowed", "only GET and HEAD\n");
            return Answer { headers: "Allow: GET, HEAD\r\n", ..refused };
        }
    };
    let answer = match request.path.as_str() {
        "/metrics" => metrics(shard).await,
        "/ready" => ready(shard).await,
        "/live" => Answer::text("200 OK", "live\n"),
        _ => Answer::text("404 Not Found", "try /metrics, /ready or /live\n"),
    };
    Answer { without_body, ..answer }
}

async fn metrics(shard: &Rc<Shard>) -> Answer {
    match unready(shard) {
        Some(answer) => answer,
        None => {
            let (samples, _) = gather(shard).await;
            let body = samples.to_text();
            Answer { status: "200 OK", headers: PROMETHEUS, body, without_body: false }
        }
    }
}

async fn ready(shard: &Rc<Shard>) -> Answer {
    if let Some(answer) = unready(shard) {
        return answer;
    }
    let (samples, silent) = gather(shard).await;
    let opening = samples.total(OPENING);
    match (silent, opening > 0.0) {
        (0, false) => match samples.total(OFFLINE) {
            offline if offline > 0.0 => {
                let text = "partitions are offline; the broker's log says why";
                Answer::text("200 OK", &format!("ready, but {offline} {text}\n"))
            }
            _ => Answer::text("200 OK", "ready\n"),
        },
        (0, true) => {
            Answer::text("503 Service Unavailable", &format!("{opening} partitions are opening\n"))
        }
        (silent, _) => {
            Answer::text("503 Service Unavailable", &format!("{silent} shards do not answer\n"))
        }
    }
}

/// The answer while there is nothing to ask the shards.
fn unready(shard: &Shard) -> Option<Answer> {
    let Metrics { serving, .. } = &shard.metrics;
    match (serving.get(), shard.is_stopping()) {
        (true, false) => None,
        (_, true) => Some(Answer::text("503 Service Unavailable", "stopping\n")),
        (false, false) => Some(Answer::text("503 Service Unavailable", "starting\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_cut_and_bounded() {
        assert_eq!(parse(b"GET /met"), Ok(None));
        let request = parse(b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n");
        let wanted = Request { method: "GET".to_owned(), path: "/metrics".to_owned() };
        assert_eq!(request, Ok(Some(wanted)));
        assert_eq!(parse(b"\x16\x03\x01\0\0").unwrap_err().status, "400 Bad Request");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let refused = parse(many.as_bytes()).unwrap_err();
        assert_eq!(refused.status, "431 Request Header Fields Too Large");
    }
}
