//! `report.json`: what every kind of measurement leaves behind, and all that pages are made from.
//!
//! Owns the format (`benches/report.schema.json` says it again for other programs; a test holds
//! real reports against it). Loads, the comparison of brokers and measurements of disks share it: a
//! row is one thing measured on one subject under one workload. Nothing here measures anything.
//! `layout`, `markdown` and `html` make pages of it.

pub mod conditions;
pub mod histogram;
pub mod html;
pub mod layout;
pub mod markdown;
pub mod pages;
pub mod row;
pub mod schema;
mod write;

pub use conditions::{Broker, Disk, Leg, Machine, Named, Tool};
pub use histogram::{Buckets, LatencyHistogram};
pub use row::{Better, Comparison, Curve, Expectation, Loop, Measure, Row, Series, Subject};
pub use write::Folder;

use serde::{Deserialize, Serialize};

/// Of the format; it changes when a reader of the last one would misread.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub tool: Tool,
    /// One line that says what was measured.
    pub title: String,
    /// As it was typed.
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    pub seconds: f64,
    /// Why not everything was measured that should have been, for example "Ctrl-C".
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_early: Option<String>,
    /// The one that the tool runs on; with a remote broker only the client's.
    pub machine: Machine,
    pub brokers: Vec<Broker>,
    /// Anything else that a reader has to know: settings of the run, limits, versions.
    pub conditions: Vec<Named>,
    /// Stretches of the run, one broker each, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub legs: Vec<Leg>,
    pub rows: Vec<Row>,
    /// Figures of two subjects beside each other.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub comparisons: Vec<Comparison>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub expectations: Vec<Expectation>,
    /// What was begun and did not come to its end, with the reason.
    pub failures: Vec<String>,
}

impl Report {
    pub fn new(tool: Tool, title: &str, command: Vec<String>, machine: Machine) -> Self {
        Report {
            schema: SCHEMA,
            tool,
            title: title.to_owned(),
            command,
            started: conditions::now(),
            seconds: 0.0,
            ended_early: None,
            machine,
            brokers: Vec::new(),
            conditions: Vec::new(),
            legs: Vec::new(),
            rows: Vec::new(),
            comparisons: Vec::new(),
            expectations: Vec::new(),
            failures: Vec::new(),
        }
    }
}
