//! Record batches against Kafka's own classes, against the `kafka-protocol` crate, and against
//! hostile bytes.

// Clippy lets tests unwrap, but does not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod fuzz;
mod golden;
mod hostile;
mod property;
mod validation;
