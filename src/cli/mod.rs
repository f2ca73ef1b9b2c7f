//! The commands: `args.rs` names them, one file each does the work. Here is what several share.

pub mod args;
pub mod bench;
pub mod bench_load;
pub mod consume;
pub mod consume_group;
pub mod doctor;
pub mod dump;
pub mod group;
pub mod import;
pub mod position;
pub mod produce;
pub mod record_format;
pub mod record_input;
pub mod shown;
pub mod topic;
pub mod tune;
pub mod txn;

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;

use crate::client::Cluster;
use crate::error::{Error, Result, plain};
use args::ClusterArgs;

fn cluster(args: &ClusterArgs) -> Cluster {
    Cluster::new(args.bootstrap.clone(), Duration::from_secs(u64::from(args.timeout)))
}

/// `KEY=VALUE` flags; the value may hold further equal signs.
fn settings(texts: &[String]) -> Result<Vec<(String, String)>> {
    let parse = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err(Error::config(format!("`{text}` is not KEY=VALUE"), "write for example a=1")),
    };
    texts.iter().map(parse).collect()
}

/// To stdout. A reader that went away is an end, not a fault.
async fn print(bytes: impl Into<Bytes>) -> Result<()> {
    let bytes = bytes.into();
    if bytes.is_empty() {
        return Ok(());
    }
    reactor::stdio::write_stdout(bytes).await.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::OutputClosed,
        _ => Error::machine(format!("stdout: {}", plain(&error)), "free some space or redirect it"),
    })
}
