//! `corelane bench`: loads on any Kafka-protocol broker, and what came of them as a report.
//!
//! A workload (`workload.rs`, from a file or from flags: `file.rs`) says what to do. Each of its
//! rates is a row, measured as often as wanted (`run.rs`): topics are made, threads started
//! (`worker.rs`), producers and consumers (`producer.rs`, `consumer.rs`) follow a schedule that was
//! fixed beforehand (`schedule.rs`), and what they measured (`measure.rs`) becomes a row
//! (`rows.rs`).

pub mod broker;
pub mod built_in;
pub mod command;
pub mod consumer;
pub mod content;
pub mod file;
pub mod link;
pub mod measure;
pub mod members;
pub mod producer;
pub mod progress;
pub mod rows;
pub mod run;
pub mod schedule;
pub mod template;
pub mod txn;
pub mod worker;
pub mod workload;

pub use command::{BenchArgs, Done, list, run};
