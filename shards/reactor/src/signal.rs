//! The wish of the operator that the process ends: SIGTERM and SIGINT.

use std::io;

use crate::op::{Op, run};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM: a service manager stops us.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
}

/// Resolves with the next SIGTERM or SIGINT. The first call installs the handler for the whole
/// process, from then on these signals no longer kill it; await on one shard only.
pub async fn termination() -> io::Result<Signal> {
    let number = run(Op::Termination).await.0? as i32;
    Ok(if number == libc::SIGINT { Signal::Interrupt } else { Signal::Terminate })
}
