//! The harness's one error type. Every message names the thing and, where there is one, the remedy.

use std::process::ExitStatus;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{command} failed with {status}: {output}")]
    Command { command: String, status: ExitStatus, output: String },
    /// A toolchain is missing; the text is one line that says what to install.
    #[error("{0}")]
    Missing(String),
    #[error("no {count} consecutive free ports found on 127.0.0.1")]
    NoPorts { count: u16 },
    #[error("{target} ended before it was ready ({status}); it said:\n{tail}")]
    Died { target: &'static str, status: ExitStatus, tail: String },
    #[error("{target} was not ready after {after:?}; it said:\n{tail}")]
    NotReady { target: &'static str, after: Duration, tail: String },
    #[error("{target} did not stop within {after:?} of SIGTERM")]
    NotStopped { target: &'static str, after: Duration },
}

impl Error {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
