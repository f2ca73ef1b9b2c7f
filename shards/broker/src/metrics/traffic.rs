//! What clients do here, counted: requests, bytes, errors. Lives on the shard's core.
//!
//! The hot path adds to plain integers in cells and does nothing else; a scrape reads them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use wire::{ApiKey, ErrorCode};

use super::Samples;
use crate::shard::Shard;

/// Codes of APIs that are counted one by one; Kafka's highest is below.
const API_CODES: usize = 128;

/// One topic's traffic on one shard, whatever becomes of its partitions.
#[derive(Default)]
pub(crate) struct TopicTraffic {
    produced_bytes: Cell<u64>,
    produced_records: Cell<u64>,
    fetched_bytes: Cell<u64>,
    deleted_segments: Cell<u64>,
    deleted_bytes: Cell<u64>,
}

impl TopicTraffic {
    pub fn note_produced(&self, bytes: usize, records: i32) {
        add(&self.produced_bytes, bytes as u64);
        add(&self.produced_records, u64::try_from(records).unwrap_or(0));
    }

    /// What retention removed.
    pub fn note_retention(&self, segments: usize, bytes: u64) {
        add(&self.deleted_segments, segments as u64);
        add(&self.deleted_bytes, bytes);
    }

    pub fn note_fetched(&self, bytes: usize) {
        add(&self.fetched_bytes, bytes as u64);
    }
}

/// A shard's counters.
pub(crate) struct Traffic {
    requests: [Cell<u64>; API_CODES],
    closing: Cell<u64>,
    /// By API and error code. Errors are rare, so a map will do.
    errors: RefCell<BTreeMap<(i16, i16), u64>>,
    pub received_bytes: Cell<u64>,
    pub sent_bytes: Cell<u64>,
    topics: RefCell<BTreeMap<Rc<str>, Rc<TopicTraffic>>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            requests: std::array::from_fn(|_| Cell::new(0)),
            closing: Cell::new(0),
            errors: RefCell::default(),
            received_bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
            topics: RefCell::default(),
        }
    }
}

impl Traffic {
    pub fn note_request(&self, api: ApiKey) {
        count(&self.requests, api);
    }

    /// A request that ended its connection.
    pub fn note_closing(&self) {
        add(&self.closing, 1);
    }

    /// A partition of a request that was answered with an error.
    pub fn note_error(&self, api: ApiKey, error: ErrorCode) {
        if error != ErrorCode::None {
            *self.errors.borrow_mut().entry((api.code(), error.code())).or_default() += 1;
        }
    }

    pub fn note_received(&self, bytes: usize) {
        add(&self.received_bytes, bytes as u64);
    }

    pub fn note_sent(&self, bytes: usize) {
        add(&self.sent_bytes, bytes as u64);
    }

    /// The counters of a topic, shared by its partitions on this shard.
    pub fn of_topic(&self, topic: &Rc<str>) -> Rc<TopicTraffic> {
        self.topics.borrow_mut().entry(topic.clone()).or_default().clone()
    }

    /// Forgets topics that are no more; whoever still holds their counters counts in vain.
    fn keep_topics(&self, is_there: impl Fn(&str) -> bool) {
        self.topics.borrow_mut().retain(|topic, _| is_there(topic));
    }
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get().wrapping_add(more));
}

fn count(cells: &[Cell<u64>; API_CODES], api: ApiKey) {
    if let Some(cell) = usize::try_from(api.code()).ok().and_then(|code| cells.get(code)) {
        add(cell, 1);
    }
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let traffic = &shard.metrics.traffic;
    for support in crate::api::api_table() {
        let label = [("api", support.key.name())];
        let at = usize::try_from(support.key.code()).unwrap_or(API_CODES);
        let read = |cells: &[Cell<u64>; API_CODES]| cells.get(at).map_or(0, Cell::get) as f64;
        out.counter(
            "corelane_requests_total",
            "Requests that were understood, by API.",
            &label,
            read(&traffic.requests),
        );
    }
    out.counter(
        "corelane_requests_closing_total",
        "Requests that ended their connection: malformed, not supported, or without an answer.",
        &[],
        traffic.closing.get() as f64,
    );
    for ((api, error), errors) in traffic.errors.borrow().iter() {
        let api = ApiKey::from_code(*api).map_or("unknown", ApiKey::name);
        let error = ErrorCode::from_code(*error).map_or("unknown", ErrorCode::name);
        out.counter(
            "corelane_partition_errors_total",
            "Partitions of requests that were answered with an error.",
            &[("api", api), ("error", error)],
            *errors as f64,
        );
    }
    out.counter(
        "corelane_received_bytes_total",
        "Bytes of requests received from clients.",
        &[],
        traffic.received_bytes.get() as f64,
    );
    out.counter(
        "corelane_sent_bytes_total",
        "Bytes of responses sent to clients.",
        &[],
        traffic.sent_bytes.get() as f64,
    );
    topics(shard, out);
}

fn topics(shard: &Shard, out: &mut Samples) {
    let traffic = &shard.metrics.traffic;
    let image = shard.image();
    traffic.keep_topics(|topic| image.topic_by_name(topic).is_some());
    for (topic, counted) in traffic.topics.borrow().iter() {
        let label = [("topic", topic.as_ref())];
        out.counter(
            "corelane_topic_produced_bytes_total",
            "Bytes of batches that producers appended, as they are stored.",
            &label,
            counted.produced_bytes.get() as f64,
        );
        out.counter(
            "corelane_topic_produced_records_total",
            "Records that producers appended.",
            &label,
            counted.produced_records.get() as f64,
        );
        out.counter(
            "corelane_topic_fetched_bytes_total",
            "Bytes of batches that went to consumers.",
            &label,
            counted.fetched_bytes.get() as f64,
        );
        out.counter(
            "corelane_retention_deleted_segments_total",
            "Segments that retention removed.",
            &label,
            counted.deleted_segments.get() as f64,
        );
        out.counter(
            "corelane_retention_deleted_bytes_total",
            "Bytes of the segments that retention removed.",
            &label,
            counted.deleted_bytes.get() as f64,
        );
    }
}
