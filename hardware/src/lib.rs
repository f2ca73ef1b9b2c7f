//! What the machine offers to one Corelane process, and whether that is enough.
//!
//! Owns: the facts (usable CPUs, memory, limits, file systems, ports, the io_uring switch) and the
//! preflight list built from them. Lives on the main thread, before any shard runs, so plain
//! blocking calls are right here. Never: names another crate of ours, starts a ring, keeps state.

#![forbid(unsafe_code)]

mod address;
mod cgroup;
mod cpu;
mod directory;
mod disk;
mod doctor;
mod host;
mod io_uring;
mod limits;
mod lock;
mod memory;
mod parent;
mod port;
mod preflight;
mod profile;
mod size;
mod tune;

pub use address::outbound_address;
pub use cgroup::{Hierarchy, hierarchies};
pub use cpu::{Cpus, usable_cpus};
pub use directory::{DirectIo, Directory, inspect_directory, place_of};
pub use disk::{Disk, DiskKind, Mount};
pub use doctor::{Finding, Fix, Known, Level, Persist, Request, examine};
pub use host::{Host, Rooted};
pub use io_uring::{IoUringSwitch, io_uring_switch};
pub use limits::{Limit, Resource, limit, raise_to_hard};
pub use lock::is_locked;
pub use memory::{Memory, memory};
pub use parent::end_with_parent;
pub use port::{PortState, port_state};
pub use preflight::{Check, Preflight, Status, preflight};
pub use profile::{
    Cell, Conditions, Device, FileSystem, HostFacts, Mixed, Profile, ProfileError, SyncedAppend,
};
pub use size::{SizeError, format_size, parse_size};
pub use tune::{Applied, PrintedFile, apply, files, fixes};

use std::path::PathBuf;

/// What could not be found out about the machine.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    #[error("cannot read the CPU affinity of this process: {0}")]
    Affinity(std::io::Error),
    #[error("this process may run on no CPU at all; widen its cpuset or affinity mask")]
    NoCpu,
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} does not say how much memory there is")]
    NoMemoryTotal { path: PathBuf },
}
