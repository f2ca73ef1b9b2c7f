//! What a backend must do, as one suite: most tests run on io_uring, on glommio where that
//! feature is on, and, over many seeds and with short transfers and interruptions thrown in, on the
//! simulator.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption fails the test")]

#[macro_use]
mod harness;
mod classes;
mod crashes;
mod files;
mod mesh;
mod model;
mod names;
mod sockets;
mod sync;
mod tasks;
