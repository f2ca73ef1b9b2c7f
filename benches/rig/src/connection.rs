//! One blocking connection to one broker: frames out, frames in.
//!
//! Owns the socket and the bytes received but not yet taken. A frame is lent from the receive
//! buffer, never copied. Every read and write is bounded in time, every frame in size.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::frame::{self, SIZE_BYTES};
use wire::{ApiKey, Message, Reader};

use crate::error::{Error, Result};

pub const CLIENT_ID: &str = "rig";
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const RECEIVE_BYTES: usize = 256 << 10;
/// Above the 55 MiB that a broker puts into one fetch answer.
const FRAME_BYTES_MAX: usize = 64 << 20;

#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    correlation_id: i32,
}

/// An answer, decoded on demand so that it can borrow from its bytes.
#[derive(Debug)]
pub struct Reply {
    body: Vec<u8>,
    version: i16,
}

impl Reply {
    pub fn decode<'a, R: Message<'a>>(&'a self) -> Result<R> {
        Ok(R::decode(&mut Reader::new(&self.body), self.version)?)
    }
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let io = || Error::io(format!("connect to {address}"));
        let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN).map_err(io())?;
        stream.set_nodelay(true).map_err(io())?;
        stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(io())?;
        stream.set_write_timeout(Some(ANSWER_WITHIN)).map_err(io())?;
        Ok(Connection { stream, inbox: Inbox::default(), correlation_id: 0 })
    }

    /// One request and its answer, with nothing else on the way.
    pub fn call<'q, Q: Message<'q>>(&mut self, request: &Q, version: i16) -> Result<Reply> {
        let api = api_of::<Q>()?;
        let sent = self.send(request, version)?;
        let frame = self.receive()?;
        let body = body_of(frame, api, version, sent)?.to_vec();
        Ok(Reply { body, version })
    }

    /// Encodes and sends; gives the correlation id that the answer will have.
    pub fn send<'q, Q: Message<'q>>(&mut self, request: &Q, version: i16) -> Result<i32> {
        self.correlation_id += 1;
        let id = self.correlation_id;
        let mut writer = frame::begin_request(api_of::<Q>()?, version, id, Some(CLIENT_ID))?;
        request.encode(&mut writer, version)?;
        let output = frame::finish_request(writer);
        self.stream.write_all(&output.bytes).map_err(Error::io("send a request"))?;
        Ok(id)
    }

    /// Sends ready-made frames with as few system calls as the socket allows.
    pub fn send_slices(&mut self, slices: &mut [IoSlice<'_>]) -> Result<()> {
        send_slices(&mut self.stream, slices)
    }

    /// The next frame without its size.
    pub fn receive(&mut self) -> Result<&[u8]> {
        self.inbox.next_frame(&mut self.stream)
    }

    /// Whether `receive` would give a frame without waiting.
    pub fn has_received(&self) -> bool {
        self.inbox.whole_frame().is_ok_and(|frame| frame.is_some())
    }

    /// For a thread that only sends beside one that only receives.
    pub fn split(self) -> Result<(TcpStream, Self)> {
        let sender = self.stream.try_clone().map_err(Error::io("share a socket"))?;
        Ok((sender, self))
    }
}

pub fn send_slices(stream: &mut TcpStream, mut slices: &mut [IoSlice<'_>]) -> Result<()> {
    while !slices.is_empty() {
        let sent = stream.write_vectored(slices).map_err(Error::io("send requests"))?;
        if sent == 0 {
            return Err(Error::Closed);
        }
        IoSlice::advance_slices(&mut slices, sent);
    }
    Ok(())
}

/// The body of an answer whose turn it is.
pub fn body_of(frame: &[u8], api: ApiKey, version: i16, expected: i32) -> Result<&[u8]> {
    let mut reader = Reader::new(frame);
    let answered = frame::decode_response_header(&mut reader, api, version)?;
    if answered != expected {
        return Err(Error::OutOfTurn { expected, answered });
    }
    Ok(reader.rest())
}

fn api_of<'q, Q: Message<'q>>() -> Result<ApiKey> {
    let api = Q::API_KEY.and_then(ApiKey::from_code);
    api.ok_or_else(|| Error::Usage("not a request".to_owned()))
}

/// Bytes received: `buffer[start..end]` are not taken yet.
#[derive(Debug)]
struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox { buffer: vec![0; RECEIVE_BYTES], start: 0, end: 0 }
    }
}

impl Inbox {
    fn next_frame(&mut self, stream: &mut impl Read) -> Result<&[u8]> {
        let size = loop {
            match self.whole_frame()? {
                Some(size) => break size,
                None => self.fill(stream)?,
            }
        };
        let from = self.start + SIZE_BYTES;
        self.start = from + size;
        self.buffer.get(from..self.start).ok_or(Error::Closed)
    }

    /// The size of the frame at the front, once all of it is there.
    fn whole_frame(&self) -> Result<Option<usize>> {
        let size = self.announced()?;
        Ok(size.filter(|size| self.end - self.start >= SIZE_BYTES + size))
    }

    fn announced(&self) -> Result<Option<usize>> {
        let received = self.buffer.get(self.start..self.end).unwrap_or_default();
        match received.first_chunk() {
            Some(prefix) => Ok(Some(frame::decode_size(*prefix, FRAME_BYTES_MAX)?)),
            None => Ok(None),
        }
    }

    fn fill(&mut self, stream: &mut impl Read) -> Result<()> {
        let needed = SIZE_BYTES + self.announced()?.unwrap_or(0);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.buffer.len() - self.start < needed || self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = stream.read(room).map_err(Error::io("receive an answer"))?;
        if read == 0 {
            return Err(Error::Closed);
        }
        self.end += read;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes a few at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(self.0.len()).min(room.len());
            let (now, later) = self.0.split_at(count);
            room[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn frame(fill: u8, size: usize) -> Vec<u8> {
        let mut bytes = i32::try_from(size).unwrap().to_be_bytes().to_vec();
        bytes.resize(SIZE_BYTES + size, fill);
        bytes
    }

    #[test]
    fn frames_of_all_sizes_come_back_however_they_arrive() {
        let sizes = [0, 1, 3, RECEIVE_BYTES - 4, RECEIVE_BYTES, 3 * RECEIVE_BYTES + 1, 7];
        let sent: Vec<u8> = sizes.iter().flat_map(|&size| frame(size as u8, size)).collect();
        for step in [1000, 65_536, usize::MAX] {
            let mut stream = Dribble(&sent, step);
            let mut inbox = Inbox::default();
            for size in sizes {
                let got = inbox.next_frame(&mut stream).unwrap();
                assert_eq!(got.len(), size);
                assert!(got.iter().all(|&byte| byte == size as u8));
            }
            assert!(matches!(inbox.next_frame(&mut stream), Err(Error::Closed)));
        }
    }

    #[test]
    fn a_frame_over_the_bound_is_refused() {
        let prefix = i32::MAX.to_be_bytes();
        let answer = Inbox::default().next_frame(&mut Dribble(&prefix, 4)).map(<[u8]>::len);
        assert!(matches!(answer, Err(Error::Decode(_))), "{answer:?}");
    }
}
