//! Standard input and output, for the command line only.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::op::{Op, run};

const READ_RESERVE_BYTES: usize = 64 << 10;

/// Appends what stdin has to `buf`, at most its spare capacity; 0 = end of input.
pub async fn read_stdin(buf: BytesMut) -> (io::Result<usize>, BytesMut) {
    let mut buf = buf;
    if buf.capacity() == buf.len() {
        buf.reserve(READ_RESERVE_BYTES);
    }
    let (result, op) = run(Op::Input { buf }).await;
    let Op::Input { buf } = op else { unreachable!("an input stays an input") };
    (result.map(|n| n as usize), buf)
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
        match result? as usize {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => done += n,
        }
    }
    Ok(())
}
