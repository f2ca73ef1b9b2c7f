//! Allocations and system calls: the broker on io_uring, on a thread of its own.
//!
//! The client's thread is not counted. Each shape runs twice, the second time with more requests; the
//! difference of the two is what the additional requests took, so that start and end cancel out.
//! How requests and completions meet in one turn of the ring is a matter of time, so calls into the
//! kernel are counted with a broad tolerance.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use reactor::{Mesh, ShardSpec};

use crate::broker_side;
use crate::client::{self, Marks};
use crate::error::Error;
use crate::shape::{Kind, Shape};

/// Requests of the short run, and bytes that the long one moves beyond them, within limits.
const SHORT: usize = 50;
const MORE_BYTES: usize = 64 << 20;
const MORE_MIN: usize = 400;
const MORE_MAX: usize = 2_000;

/// What one request takes.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub allocations: f64,
    pub allocated_bytes: f64,
    pub enters: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    allocations: u64,
    bytes: u64,
    enters: u64,
}

/// Counts a shape; `None` if it has no broker. Data goes below `dir`, which must allow direct I/O.
pub fn count(shape: &Shape, dir: &Path) -> Result<Option<Calls>, Error> {
    if shape.kind == Kind::Echo {
        return Ok(None);
    }
    let more = (MORE_BYTES / shape.batch_bytes).clamp(MORE_MIN, MORE_MAX);
    let few = run(shape, SHORT, dir)?;
    let many = run(shape, SHORT + more, dir)?;
    let per_request = |few: u64, many: u64| (many as f64 - few as f64) / more as f64;
    Ok(Some(Calls {
        allocations: per_request(few.allocations, many.allocations),
        allocated_bytes: per_request(few.bytes, many.bytes),
        enters: per_request(few.enters, many.enters),
    }))
}

fn run(shape: &Shape, requests: usize, dir: &Path) -> Result<Counted, Error> {
    let data = tempfile::tempdir_in(dir).map_err(Error::io("making a data directory"))?;
    let address = free_address()?;
    let ready = Arc::new(AtomicBool::new(false));
    let mut ends = reactor::mesh::<()>(2, 1).into_iter();
    let (Some(stopped), Some(stop)) = (ends.next(), ends.next()) else {
        return Err(Error::Broker("no mesh of two".to_owned()));
    };
    let (path, is_ready) = (data.path().to_path_buf(), ready.clone());
    let broker = thread::spawn(move || serve(address, path, is_ready, stopped));
    let shape = *shape;
    let asked = reactor::uring::run(&ShardSpec::default(), move || async move {
        let outcome = ask(&shape, address, requests, &ready).await;
        // A broker that has ended needs no telling.
        let _ = stop.send(0, ()).await;
        outcome
    });
    let counted = broker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    asked.map_err(Error::io("io_uring"))??;
    counted
}

/// The broker's thread, from its first allocation to its last.
fn serve(
    address: SocketAddr,
    dir: PathBuf,
    ready: Arc<AtomicBool>,
    stopped: Mesh<()>,
) -> Result<Counted, Error> {
    let mut ran = Err(Error::Broker("it did not run".to_owned()));
    let counted = allocation_counter::measure(|| {
        let main = move || async move {
            let _broker = broker_side::start(address, &dir, ready).await?;
            // `None`: the client is gone, which is the end as well.
            let _ = stopped.recv().await;
            Ok(reactor::usage().enters)
        };
        ran = reactor::uring::run(&ShardSpec::default(), main)
            .map_err(Error::io("io_uring"))
            .and_then(|enters| enters);
    });
    Ok(Counted { allocations: counted.count_total, bytes: counted.bytes_total, enters: ran? })
}

async fn ask(
    shape: &Shape,
    address: SocketAddr,
    requests: usize,
    ready: &AtomicBool,
) -> Result<(), Error> {
    /// A broker that does not start within this many milliseconds never will.
    const PATIENCE_MS: usize = 30_000;
    for _ in 0..PATIENCE_MS {
        if ready.load(Ordering::SeqCst) {
            let marks = Marks { begin: || {}, end: || {} };
            return client::run(shape, address, requests, marks).await;
        }
        reactor::sleep(Duration::from_millis(1)).await;
    }
    Err(Error::Broker("it was not ready in time".to_owned()))
}

fn free_address() -> Result<SocketAddr, Error> {
    let bound = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0));
    bound.and_then(|listener| listener.local_addr()).map_err(Error::io("looking for a free port"))
}
