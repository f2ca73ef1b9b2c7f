//! One connection that never blocks, in two halves: what is left to send, and what came and was not
//! taken. An answer is lent from the second while the next request goes into the first.
//!
//! Thousands of them share a thread, so buffers start small and grow to what their connection
//! needs. Registered edge-triggered: whoever is told of input takes all of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use wire::frame::{self, SIZE_BYTES};
use wire::{ApiKey, Message};

use crate::connection::CLIENT_ID;
use crate::error::{Error, Result};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const FIRST_BYTES: usize = 4 << 10;
/// More is read at once where more is announced.
const ROOM_BYTES: usize = 2 << 10;
const FRAME_BYTES_MAX: usize = 128 << 20;

#[derive(Debug)]
pub struct Link {
    stream: Arc<TcpStream>,
    unsent: Vec<u8>,
    sent: usize,
    correlation: i32,
}

#[derive(Debug)]
pub struct Inbox {
    stream: Arc<TcpStream>,
    buffer: Vec<u8>,
    /// `buffer[start..end]` came and was not taken.
    start: usize,
    end: usize,
}

pub fn open(address: SocketAddr) -> Result<(Link, Inbox)> {
    let io = || Error::io(format!("connect to {address}"));
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN).map_err(io())?;
    stream.set_nodelay(true).map_err(io())?;
    stream.set_nonblocking(true).map_err(io())?;
    let stream = Arc::new(stream);
    let inbox =
        Inbox { stream: Arc::clone(&stream), buffer: vec![0; FIRST_BYTES], start: 0, end: 0 };
    Ok((Link { stream, unsent: Vec::new(), sent: 0, correlation: 0 }, inbox))
}

impl Link {
    /// Encodes and sends as much as the socket takes; gives the correlation id of the answer.
    pub fn request<'q, Q: Message<'q>>(&mut self, request: &Q, version: i16) -> Result<i32> {
        let api = Q::API_KEY.and_then(ApiKey::from_code);
        let api = api.ok_or_else(|| Error::Usage("not a request".to_owned()))?;
        self.correlation = self.correlation.wrapping_add(1);
        let mut writer = frame::begin_request(api, version, self.correlation, Some(CLIENT_ID))?;
        request.encode(&mut writer, version)?;
        let output = frame::finish_request(writer);
        self.send(&output.bytes)?;
        Ok(self.correlation)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        let done = if self.is_flushed() { self.write(bytes)? } else { 0 };
        self.unsent.extend_from_slice(bytes.get(done..).unwrap_or_default());
        Ok(())
    }

    pub fn is_flushed(&self) -> bool {
        self.unsent.len() == self.sent
    }

    /// Sends what is left, as much as the socket takes.
    pub fn flush(&mut self) -> Result<()> {
        if self.is_flushed() {
            return Ok(());
        }
        let left = std::mem::take(&mut self.unsent);
        let done = self.write(left.get(self.sent..).unwrap_or_default());
        self.unsent = left;
        self.sent += done?;
        if self.is_flushed() {
            self.unsent.clear();
            self.sent = 0;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
            match (&*self.stream).write(left) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("send a request")(error)),
            }
        }
        Ok(done)
    }
}

impl Inbox {
    /// Takes in what has come, up to one buffer; false once there is nothing more.
    pub fn fill(&mut self) -> Result<bool> {
        self.make_room()?;
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let size = room.len();
        match (&*self.stream).read(room) {
            Ok(0) => Err(Error::Closed),
            Ok(count) => {
                self.end += count;
                Ok(count == size)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(Error::io("receive an answer")(error)),
        }
    }

    fn make_room(&mut self) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let announced = self.announced()?.map_or(0, |size| SIZE_BYTES + size);
        let needed = announced.max(self.end - self.start + ROOM_BYTES);
        if self.buffer.len() - self.start < needed {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        }
        Ok(())
    }

    fn announced(&self) -> Result<Option<usize>> {
        let received = self.buffer.get(self.start..self.end).unwrap_or_default();
        match received.first_chunk() {
            Some(prefix) => Ok(Some(frame::decode_size(*prefix, FRAME_BYTES_MAX)?)),
            None => Ok(None),
        }
    }

    /// The next whole frame without its size, once it is there.
    pub fn frame(&mut self) -> Result<Option<&[u8]>> {
        let Some(size) = self.announced()? else { return Ok(None) };
        if self.end - self.start < SIZE_BYTES + size {
            return Ok(None);
        }
        let from = self.start + SIZE_BYTES;
        self.start = from + size;
        Ok(self.buffer.get(from..self.start))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn frames_of_all_sizes_come_through_and_much_is_sent_in_pieces() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (mut link, mut inbox) = open(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        // More than the kernel takes without a reader.
        let much = vec![7u8; 32 << 20];
        link.send(&much).unwrap();
        assert!(!link.is_flushed());
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; 32 << 20];
            peer.read_exact(&mut all).unwrap();
            assert!(all.iter().all(|byte| *byte == 7));
            for size in [0usize, 1, 5_000, 300_000, 3] {
                let mut bytes = i32::try_from(size).unwrap().to_be_bytes().to_vec();
                bytes.resize(SIZE_BYTES + size, size as u8);
                peer.write_all(&bytes).unwrap();
            }
        });
        while !link.is_flushed() {
            link.flush().unwrap();
        }
        for size in [0usize, 1, 5_000, 300_000, 3] {
            let frame = loop {
                if let Some(frame) = inbox.frame().unwrap() {
                    break frame.to_vec();
                }
                inbox.fill().unwrap();
            };
            assert_eq!(frame, vec![size as u8; size]);
        }
        reader.join().unwrap();
        let mut ended = inbox.fill();
        while ended.is_ok() {
            ended = inbox.fill();
        }
        assert!(matches!(ended, Err(Error::Closed)));
    }
}
