//! One connection to one broker: version negotiation, then a request and its answer at a time.
//!
//! Owns the socket, the correlation ids and the versions the broker said it speaks. Never: knows
//! topics or retries. After any error the connection is of no use and must be dropped, as an answer
//! may still be on its way.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use reactor::TcpStream;
use wire::Message;
use wire::messages::{ApiVersionsRequest, ApiVersionsResponse};
use wire::{ApiKey, Reader, frame};

use super::error::ClientError;
use crate::config::endpoint::Endpoint;
use crate::error::plain;

const CLIENT_ID: &str = "corelane-cli";
/// Kafka's largest request is 100 MiB; an answer that carries one such batch is a little larger.
const MAX_REPLY_BYTES: usize = 128 << 20;
const READ_BYTES: usize = 64 << 10;
/// One broker that does not answer must not use up the whole time for all of them.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
const API_VERSIONS: RangeInclusive<i16> = 0..=4;
const UNSUPPORTED_VERSION: i16 = 35;

pub struct Connection {
    stream: TcpStream,
    peer: String,
    correlation_id: i32,
    versions: Vec<(i16, RangeInclusive<i16>)>,
    inbox: BytesMut,
}

/// An answer, decoded on demand so that it can borrow from its bytes.
#[derive(Debug)]
pub struct Reply {
    body: Bytes,
    version: i16,
    peer: String,
}

impl Reply {
    pub fn decode<'a, R: Message<'a>>(&'a self) -> Result<R, ClientError> {
        let mut reader = Reader::new(&self.body);
        R::decode(&mut reader, self.version).map_err(|error| ClientError::Garbled {
            peer: self.peer.clone(),
            reason: error.to_string(),
        })
    }

    /// The bytes that a decoded part borrowed, kept alive without a copy.
    pub fn keep(&self, part: &[u8]) -> Bytes {
        self.body.slice_ref(part)
    }
}

impl Connection {
    /// Connects and asks for the versions, within `wait`.
    pub async fn open(endpoint: &Endpoint, wait: Duration) -> Result<Self, ClientError> {
        let peer = endpoint.to_string();
        let wait = wait.min(CONNECT_WAIT);
        match reactor::timeout(wait, Self::open_unbounded(endpoint, &peer)).await {
            Ok(opened) => opened,
            Err(_) => Err(ClientError::NoAnswer { peer, wait }),
        }
    }

    async fn open_unbounded(endpoint: &Endpoint, peer: &str) -> Result<Self, ClientError> {
        let broken = |reason: String| ClientError::Connection { peer: peer.to_owned(), reason };
        let addresses = reactor::net::resolve(&endpoint.host, endpoint.port).await;
        let addresses = addresses.map_err(|error| broken(plain(&error)))?;
        let mut reason = "the name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let mut connection = Connection {
                        stream,
                        peer: peer.to_owned(),
                        correlation_id: 0,
                        versions: Vec::new(),
                        inbox: BytesMut::new(),
                    };
                    connection.negotiate().await?;
                    return Ok(connection);
                }
                Err(error) => reason = plain(&error),
            }
        }
        Err(broken(reason))
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Asks in the newest version first. A broker that does not know it answers error 35 in the
    /// layout of version 0, with its own versions.
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "corelane".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
            ..ApiVersionsRequest::default()
        };
        let newest = *API_VERSIONS.end();
        let mut reply = self.exchange(ApiKey::ApiVersions, newest, &request).await?;
        if reply.body.get(..2) == Some(&UNSUPPORTED_VERSION.to_be_bytes()[..]) {
            reply.version = 0;
            let answer: ApiVersionsResponse<'_> = reply.decode()?;
            let code = ApiKey::ApiVersions.code();
            let theirs = answer.api_keys.iter().find(|api| api.api_key == code);
            let version = theirs.map_or(0, |api| api.max_version.clamp(0, newest));
            reply = self.exchange(ApiKey::ApiVersions, version, &request).await?;
        }
        let answer: ApiVersionsResponse<'_> = reply.decode()?;
        ClientError::check(format!("{}: versions", self.peer), answer.error_code, None)?;
        let ranges = answer.api_keys.iter();
        self.versions =
            ranges.map(|api| (api.api_key, api.min_version..=api.max_version)).collect();
        Ok(())
    }

    /// The newest version of `api` that is both in `ours` and the broker's.
    pub fn version(&self, api: ApiKey, ours: RangeInclusive<i16>) -> Result<i16, ClientError> {
        let none = ClientError::Version { peer: self.peer.clone(), api: api.name() };
        let theirs = self.versions.iter().find(|(code, _)| *code == api.code());
        let (_, theirs) = theirs.ok_or_else(|| none.clone())?;
        let version = *ours.end().min(theirs.end());
        if version < *ours.start() || version < *theirs.start() {
            return Err(none);
        }
        Ok(version)
    }

    /// Sends `request` in the newest version of `ours` and waits for the answer.
    pub async fn call<'q, Q: Message<'q>>(
        &mut self,
        request: &Q,
        ours: RangeInclusive<i16>,
        wait: Duration,
    ) -> Result<Reply, ClientError> {
        let api = api_of::<Q>()?;
        let version = self.version(api, ours)?;
        match reactor::timeout(wait, self.exchange(api, version, request)).await {
            Ok(reply) => reply,
            Err(_) => Err(ClientError::NoAnswer { peer: self.peer.clone(), wait }),
        }
    }

    /// For requests without an answer (acks=0).
    pub async fn tell<'q, Q: Message<'q>>(
        &mut self,
        request: &Q,
        ours: RangeInclusive<i16>,
        wait: Duration,
    ) -> Result<(), ClientError> {
        let api = api_of::<Q>()?;
        let version = self.version(api, ours)?;
        match reactor::timeout(wait, self.send(api, version, request)).await {
            Ok(sent) => sent.map(|_| ()),
            Err(_) => Err(ClientError::NoAnswer { peer: self.peer.clone(), wait }),
        }
    }

    async fn exchange<'q, Q: Message<'q>>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &Q,
    ) -> Result<Reply, ClientError> {
        let sent = self.send(api, version, request).await?;
        let frame = self.receive().await?;
        let mut reader = Reader::new(&frame);
        let header = frame::decode_response_header(&mut reader, api, version);
        let answered = header.map_err(|error| self.garbled(error.to_string()))?;
        if answered != sent {
            return Err(self.garbled(format!("it answers request {answered}, not {sent}")));
        }
        let header_bytes = frame.len() - reader.remaining();
        Ok(Reply { body: frame.slice(header_bytes..), version, peer: self.peer.clone() })
    }

    async fn send<'q, Q: Message<'q>>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &Q,
    ) -> Result<i32, ClientError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let id = self.correlation_id;
        let unsayable = |error: wire::EncodeError| ClientError::Request(error.to_string());
        let mut writer =
            frame::begin_request(api, version, id, Some(CLIENT_ID)).map_err(unsayable)?;
        request.encode(&mut writer, version).map_err(unsayable)?;
        let output = frame::finish_request(writer);
        let written = self.stream.write_all(vec![output.bytes.freeze()]).await;
        written.map_err(|error| self.broken(&error))?;
        Ok(id)
    }

    /// The next frame without its size.
    async fn receive(&mut self) -> Result<Bytes, ClientError> {
        loop {
            if let Some(prefix) = self.inbox.first_chunk::<4>() {
                let size = frame::decode_size(*prefix, MAX_REPLY_BYTES)
                    .map_err(|error| self.garbled(error.to_string()))?;
                if self.inbox.len() - 4 >= size {
                    self.inbox.advance(4);
                    return Ok(self.inbox.split_to(size).freeze());
                }
            }
            let mut buffer = std::mem::take(&mut self.inbox);
            buffer.reserve(READ_BYTES);
            let (read, buffer) = self.stream.read(buffer).await;
            self.inbox = buffer;
            if read.map_err(|error| self.broken(&error))? == 0 {
                let reason = "the broker closed the connection".to_owned();
                return Err(ClientError::Connection { peer: self.peer.clone(), reason });
            }
        }
    }

    fn broken(&self, error: &std::io::Error) -> ClientError {
        ClientError::Connection { peer: self.peer.clone(), reason: plain(error) }
    }

    fn garbled(&self, reason: String) -> ClientError {
        ClientError::Garbled { peer: self.peer.clone(), reason }
    }
}

fn api_of<'q, Q: Message<'q>>() -> Result<ApiKey, ClientError> {
    Q::API_KEY
        .and_then(ApiKey::from_code)
        .ok_or_else(|| ClientError::Request(format!("{} is no request", Q::NAME)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::{BufMut as _, Bytes, BytesMut};
    use reactor::sim::World;
    use reactor::{TcpListener, TcpStream};
    use wire::messages::api_versions_response::ApiVersion;
    use wire::messages::{ApiVersionsResponse, MetadataRequest};
    use wire::{ApiKey, Message as _, frame};

    use super::*;

    const PORT: u16 = 9092;
    const WAIT: Duration = Duration::from_secs(5);

    /// What the other side does with one request: the bytes it sends back, or goes away.
    type Script = fn(ApiKey, i16, i32) -> Option<Vec<u8>>;

    /// Connects to a broker that follows `script` and asks for metadata once.
    fn ask(script: Script) -> Result<i16, ClientError> {
        let mut world = World::new(1);
        let outcome = world.run(move || async move {
            let address = ([127, 0, 0, 1], PORT).into();
            let listener = TcpListener::bind(address, 1).unwrap();
            reactor::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    reactor::spawn(serve(stream, script)).detach();
                }
            })
            .detach();
            let endpoint = Endpoint { host: "127.0.0.1".into(), port: PORT };
            let mut connection = Connection::open(&endpoint, WAIT).await?;
            let request = MetadataRequest::default();
            connection.call(&request, 4..=12, WAIT).await.map(|reply| reply.version)
        });
        outcome.finished().expect("the client hangs")
    }

    async fn serve(stream: TcpStream, script: Script) {
        let mut inbox = BytesMut::new();
        loop {
            while let Some(prefix) = inbox.first_chunk::<4>() {
                let size = 4 + frame::decode_size(*prefix, 1 << 20).unwrap();
                if inbox.len() < size {
                    break;
                }
                let request = inbox.split_to(size);
                let mut reader = Reader::new(&request[4..]);
                let header = frame::decode_request_header(&mut reader).unwrap();
                let api = ApiKey::from_code(header.api_key).unwrap();
                let Some(answer) = script(api, header.api_version, header.correlation_id) else {
                    return stream.shutdown();
                };
                stream.write_all(vec![Bytes::from(answer)]).await.unwrap();
            }
            let mut buffer = std::mem::take(&mut inbox);
            buffer.reserve(1024);
            let (read, buffer) = stream.read(buffer).await;
            inbox = buffer;
            if read.unwrap_or(0) == 0 {
                return;
            }
        }
    }

    fn versions(version: i16, id: i32, error_code: i16, metadata_max: i16) -> Vec<u8> {
        let range = |api: ApiKey, max_version| ApiVersion {
            api_key: api.code(),
            min_version: 0,
            max_version,
        };
        let response = ApiVersionsResponse {
            error_code,
            api_keys: vec![range(ApiKey::ApiVersions, 3), range(ApiKey::Metadata, metadata_max)]
                .into(),
            ..ApiVersionsResponse::default()
        };
        let mut writer = frame::begin_response(ApiKey::ApiVersions, version, id);
        response.encode(&mut writer, version).unwrap();
        frame::finish_response(writer).bytes.to_vec()
    }

    fn body(api: ApiKey, version: i16, id: i32) -> Vec<u8> {
        frame::finish_response(frame::begin_response(api, version, id)).bytes.to_vec()
    }

    #[test]
    fn the_newest_version_both_sides_know_is_spoken() {
        let version = ask(|api, version, id| match api {
            ApiKey::ApiVersions => Some(versions(version, id, 0, 9)),
            other => Some(body(other, version, id)),
        });
        assert_eq!(version.unwrap(), 9);
    }

    #[test]
    fn an_older_broker_is_asked_again_in_its_own_version() {
        let version = ask(|api, version, id| match (api, version) {
            // Kafka's answer to a version from the future: error 35 in the layout of version 0.
            (ApiKey::ApiVersions, 4) => Some(versions(0, id, 35, 0)),
            (ApiKey::ApiVersions, 3) => Some(versions(3, id, 0, 12)),
            (ApiKey::ApiVersions, _) => None,
            (other, _) => Some(body(other, version, id)),
        });
        assert_eq!(version.unwrap(), 12);
    }

    #[test]
    fn a_broker_that_is_too_old_is_told_apart_from_one_that_is_away() {
        let error = ask(|_, version, id| Some(versions(version, id, 0, 3))).unwrap_err();
        assert!(matches!(error, ClientError::Version { api: "Metadata", .. }), "{error}");
        assert!(!error.retriable());
        let error = ask(|_, _, _| None).unwrap_err();
        assert!(matches!(error, ClientError::Connection { .. }), "{error}");
        assert!(error.retriable());
    }

    #[test]
    fn a_peer_that_is_no_broker_is_refused_without_waiting_for_gigabytes() {
        let error = ask(|_, _, _| Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())).unwrap_err();
        assert!(matches!(error, ClientError::Garbled { .. }), "{error}");
        let error = ask(|_, _, _| Some((-1i32).to_be_bytes().to_vec())).unwrap_err();
        assert!(matches!(error, ClientError::Garbled { .. }), "{error}");
        let error = ask(|_, version, id| Some(versions(version, id + 1, 0, 12))).unwrap_err();
        assert!(matches!(error, ClientError::Garbled { .. }), "{error}");
    }

    #[test]
    fn half_an_answer_and_none_at_all_end_by_the_clock() {
        let error = ask(|api, version, id| match api {
            ApiKey::ApiVersions => Some(versions(version, id, 0, 12)),
            _ => {
                let mut half = BytesMut::new();
                half.put_i32(100);
                half.put_i32(id);
                Some(half.to_vec())
            }
        });
        let error = error.unwrap_err();
        assert!(matches!(error, ClientError::NoAnswer { wait: WAIT, .. }), "{error}");
        let error = ask(|_, _, _| Some(Vec::new())).unwrap_err();
        assert!(matches!(error, ClientError::NoAnswer { .. }), "{error}");
    }
}
