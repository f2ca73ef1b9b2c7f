//! The facade to the machine: executor, tasks, timers, files, sockets and cross-shard channels.
//!
//! One shard is one thread with one executor and one [`driver::Driver`]: the `uring` backend on
//! dedicated Linux hosts, the `glommio` backend beside it for comparison, the `sim` backend for
//! deterministic tests. Everything above the driver
//! (tasks, timers, files, sockets, mesh) is the same code on both. No other crate names io-uring,
//! libc, a socket, a file or a clock. Nothing in here knows Kafka.

mod backend;
mod disk_queue;
mod driver;
mod exec;
mod file;
mod op;
mod time;

pub mod buf;
mod bulk_window;
pub mod fs;
#[cfg(feature = "glommio")]
pub mod glommio;
pub mod mesh;
pub mod net;
pub mod signal;
pub mod sim;
pub mod stdio;
pub mod sync;
pub mod uring;
mod workers;

pub use backend::Backend;
pub use buf::{ALIGN, AlignedBuf, Chunk, ChunkSlice};
pub use exec::{
    Class, ClassUsage, DiskUsage, Either, Task, Usage, current_class, join_all, race, spawn,
    spawn_in, usage, with_class, yield_if_due, yield_now,
};
pub use file::{Allocate, Durability, File, OpenOptions, WriteBuf};
pub use mesh::{Mesh, mesh};
pub use net::{TcpListener, TcpStream};
pub use sync::Closed;
pub use time::{
    Instant, TimedOut, boot_id, fill_random, now, random_u64, sleep, sleep_until, timeout,
    timeout_at, wall_clock_ms,
};

use std::time::Duration;

/// How one shard thread is set up.
#[derive(Clone, Debug)]
pub struct ShardSpec {
    /// Thread name, at most 15 bytes are visible to the kernel.
    pub name: String,
    /// Core to pin the thread to; `None` leaves it to the scheduler.
    pub cpu: Option<usize>,
    /// How long an idle shard spins before it sleeps; zero sleeps at once.
    pub spin: Duration,
    /// Entries of the submission queue (completion queue is four times that), 0 = default.
    pub ring_entries: u32,
}

/// Submission entries when the spec does not say: small enough that many shards fit in 8 MiB.
pub const DEFAULT_RING_ENTRIES: u32 = 256;

impl Default for ShardSpec {
    fn default() -> Self {
        Self {
            name: "shard".to_owned(),
            cpu: None,
            spin: Duration::ZERO,
            ring_entries: DEFAULT_RING_ENTRIES,
        }
    }
}
