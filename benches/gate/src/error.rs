//! The gate's one error type.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("a request cannot be made: {0}")]
    Request(String),
    #[error("a request cannot be encoded: {0}")]
    Encode(#[from] wire::EncodeError),
    #[error("an answer cannot be read: {0}")]
    Decode(#[from] wire::DecodeError),
    #[error("{what}: the broker answers with code {code}")]
    Refused { what: &'static str, code: i16 },
    #[error("{what}: {detail}")]
    Wrong { what: &'static str, detail: String },
    #[error("the broker ended: {0}")]
    Broker(String),
    #[error("the simulated run did not end: {0}")]
    Simulation(String),
    #[error(
        "valgrind is not installed, so instructions are not counted: install the package 'valgrind'"
    )]
    NoValgrind,
    #[error("valgrind failed ({status}): {output}")]
    Valgrind { status: String, output: String },
    #[error("{path}:{line}: {detail}")]
    Baseline { path: PathBuf, line: usize, detail: String },
}

impl Error {
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
