//! Is a Kafka broker answering? One Metadata v1 request for no topics, and at least one broker in
//! the answer. Never more than that: the suites' real clients do the talking.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Correlation id, then the count of brokers.
const HEAD_BYTES: usize = 12;

/// True once the broker answers with itself in the list of live brokers.
pub(crate) fn answers(address: SocketAddr) -> bool {
    live_brokers(address).is_ok_and(|count| count > 0)
}

fn live_brokers(address: SocketAddr) -> std::io::Result<i32> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // Size 14; api key 3, version 1, correlation id 7, null client id, empty topic array.
    stream.write_all(&[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0, 0, 0, 0])?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head)?;
    let [_, _, _, _, _, _, _, _, a, b, c, d] = head;
    Ok(i32::from_be_bytes([a, b, c, d]))
}
