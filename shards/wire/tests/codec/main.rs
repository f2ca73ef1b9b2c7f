//! The codec against Kafka's own classes, against the `kafka-protocol` crate, against a second
//! reading of the schema, and against hostile bytes; what its generator and its encoder refuse.

// Clippy lets tests unwrap, but does not see that the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod allocation;
mod encoding;
mod fuzzed;
mod golden;
mod hostile;
mod model;
mod oracle;
mod probe;
mod property;
mod tables;

#[allow(dead_code)]
#[path = "../../build/emit.rs"]
mod emit;
#[allow(dead_code)]
#[path = "../../build/fields.rs"]
mod fields;
#[allow(dead_code)]
#[path = "../../build/names.rs"]
mod names;
#[allow(dead_code)]
#[path = "../../build/schema.rs"]
mod schema;
#[allow(dead_code)]
#[path = "../../build/show.rs"]
mod show;
