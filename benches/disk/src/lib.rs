//! `corelane bench disk`: a disk's own ceilings, and the broker on that disk held against them.
//!
//! Owns what is asked of a disk, in which order, and what is written down of it. Everything on the
//! disk goes through Corelane's reactor (io_uring, direct I/O), so that a ceiling is one that the
//! broker could reach. Never: asserts a speed, fills a disk, leaves a file.
//!
//! | file | is about |
//! |---|---|
//! | `plan.rs` | which cells, how long, how large a file |
//! | `target.rs` | the test file: nameless, so that no end of this process leaves it |
//! | `probe.rs` | one cell: requests of one kind, size and depth for some time |
//! | `ceiling.rs` | all cells of one disk, and several disks at the same time |
//! | `facts.rs` | the disk, the file system and the machine; the hardware profile |
//! | `emulate.rs` | slower disks by control-group limits |
//! | `device.rs` | the kernel's counters of a disk |
//! | `broker/` | the broker on each disk: throughput, what the disk does for it, latency by load |
//! | `show.rs`, `rows.rs` | the text and the rows of a report |

#![forbid(unsafe_code)]

pub mod broker;
mod ceiling;
mod device;
mod emulate;
mod error;
mod facts;
mod plan;
mod probe;
mod rows;
mod show;
mod stop;
mod target;

pub use ceiling::{Ceilings, Together, measure, measure_together};
pub use emulate::{Emulation, Preset};
pub use error::{Error, Result};
pub use facts::{Place, profile};
pub use plan::Plan;
pub use probe::Figures;
pub use rows::{Part, report};
pub use show::{ceilings_text, together_text};
pub use stop::Stop;
