//! The process around the shards: data directories, start, watch, stop.

mod data_dir;
mod meta_properties;
mod report;
pub mod serve;
mod shards;
