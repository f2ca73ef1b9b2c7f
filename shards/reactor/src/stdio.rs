//! Standard input and output, for the command line only.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::op::{Op, run};
use crate::time::sleep;

const READ_RESERVE_BYTES: usize = 64 << 10;

/// How long to wait before trying again where whoever started us left the stream non-blocking.
const NON_BLOCKING_PAUSE: Duration = Duration::from_millis(5);

/// Appends what stdin has to `buf`, at most its spare capacity; 0 = end of input.
pub async fn read_stdin(buf: BytesMut) -> (io::Result<usize>, BytesMut) {
    let mut buf = buf;
    if buf.capacity() == buf.len() {
        buf.reserve(READ_RESERVE_BYTES);
    }
    loop {
        let (result, op) = run(Op::Input { buf }).await;
        let Op::Input { buf: back } = op else { unreachable!("an input stays an input") };
        buf = back;
        match result {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(NON_BLOCKING_PAUSE).await,
            result => return (result.map(|n| n as usize), buf),
        }
    }
}

/// Writes all of `bytes` to stdout.
pub async fn write_stdout(bytes: Bytes) -> io::Result<()> {
    let total = bytes.len();
    let mut buf = bytes;
    let mut done = 0;
    while done < total {
        let (result, op) = run(Op::Output { buf, done }).await;
        let Op::Output { buf: back, .. } = op else { unreachable!("an output stays an output") };
        buf = back;
        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n as usize,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(NON_BLOCKING_PAUSE).await,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
