//! stub
use crate::ShardSpec;
use std::future::Future;
use std::io;

pub(crate) struct JobDone;
pub(crate) fn close_now(_raw: i32) {}

/// Runs `main` as a shard on the calling thread.
pub fn run<F, Fut, T>(spec: &ShardSpec, main: F) -> io::Result<T>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    let _ = (spec, main);
    Err(io::ErrorKind::Unsupported.into())
}

/// Starts a shard on a thread of its own.
pub fn spawn_shard<F, Fut, T>(
    spec: ShardSpec,
    main: F,
) -> io::Result<std::thread::JoinHandle<io::Result<T>>>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T> + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(spec.name.clone()).spawn(move || run(&spec, main))
}

/// Can this process use io_uring?
pub fn probe() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
