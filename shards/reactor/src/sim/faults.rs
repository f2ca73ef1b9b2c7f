//! What the simulated machine does to the program. Fields may be changed between runs, and within
//! a run through [`super::with_faults`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use super::content::SECTOR;

/// Bounds of a delay, both included; drawn anew for every operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub min: Duration,
    pub max: Duration,
}

impl Delay {
    pub const fn between(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    pub const fn exactly(d: Duration) -> Self {
        Self { min: d, max: d }
    }
}

/// By default nothing fails, and delays are those of a healthy machine.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub disk: DiskFaults,
    pub net: NetFaults,
}

#[derive(Clone, Debug)]
pub struct DiskFaults {
    pub latency: Delay,
    /// On top of the latency, for syncs and synced writes.
    pub sync_latency: Delay,
    /// Reads and writes that fail with EIO, per million. A failed write lands partly or not.
    pub eio_per_million: u32,
    /// Every file operation fails with EIO once this many more have been done.
    pub eio_after: Option<u64>,
    /// One file operation fails with EIO: the one after so many more. What it would have done is
    /// done, in part or not.
    pub eio_once: Option<u64>,
    /// Syncs (and synced writes) that fail with EIO, per million. What they covered is lost at the
    /// next power cut, whatever a later sync says.
    pub sync_eio_per_million: u32,
    /// Directories on a device that is gone: everything at or below them fails with EIO, through
    /// files opened before as well.
    pub broken: BTreeSet<PathBuf>,
    /// Directories into which, and out of which, nothing can be renamed: EIO.
    pub stuck_names: BTreeSet<PathBuf>,
    /// Directories on a device that is slower: what everything at or below them takes on top.
    pub slow: BTreeMap<PathBuf, Delay>,
    /// Reads and writes that end short, per million.
    pub short_per_million: u32,
    /// Operations that end with EINTR or EAGAIN without an effect, per million.
    pub interrupt_per_million: u32,
    /// Bytes the disk holds; more fail with ENOSPC.
    pub capacity: Option<u64>,
    /// Directories on a device that is full: what grows at or below them fails with ENOSPC.
    pub full: BTreeSet<PathBuf>,
    /// Directories whose names cannot be synced for want of space: ENOSPC.
    pub no_room_for_names: BTreeSet<PathBuf>,
    /// The file system reserves no space: EOPNOTSUPP.
    pub cannot_reserve: bool,
    /// Reads under which a bit of the medium rots, per million: it is read flipped from then on.
    pub rot_per_million: u32,
    /// What the device writes as a whole when the power goes: 512 or 4,096.
    pub sector_bytes: usize,
    /// Un-synced changes of names survive a power cut each on its own, not in their order.
    pub unordered_names: bool,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            latency: Delay::between(Duration::from_micros(20), Duration::from_micros(200)),
            sync_latency: Delay::between(Duration::from_micros(50), Duration::from_micros(500)),
            eio_per_million: 0,
            eio_after: None,
            eio_once: None,
            sync_eio_per_million: 0,
            broken: BTreeSet::new(),
            stuck_names: BTreeSet::new(),
            slow: BTreeMap::new(),
            short_per_million: 0,
            interrupt_per_million: 0,
            capacity: None,
            full: BTreeSet::new(),
            no_room_for_names: BTreeSet::new(),
            cannot_reserve: false,
            rot_per_million: 0,
            sector_bytes: SECTOR,
            unordered_names: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct NetFaults {
    /// Of each packet, one way; packets of one direction stay in order.
    pub delay: Delay,
    /// Sends that reset the connection instead, per million.
    pub reset_per_million: u32,
    /// Reads that give less than what is there, per million.
    pub short_per_million: u32,
    /// Operations that end with EINTR or EAGAIN without an effect, per million.
    pub interrupt_per_million: u32,
    /// Server ports whose packets, both ways, wait until the port is taken out of here again.
    pub blackholes: BTreeSet<u16>,
    /// Bytes one direction of a connection holds before the sender waits.
    pub socket_bytes: usize,
}

impl Default for NetFaults {
    fn default() -> Self {
        Self {
            delay: Delay::between(Duration::from_micros(10), Duration::from_micros(100)),
            reset_per_million: 0,
            short_per_million: 0,
            interrupt_per_million: 0,
            blackholes: BTreeSet::new(),
            socket_bytes: 256 << 10,
        }
    }
}
