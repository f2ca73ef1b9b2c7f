//! The hot requests are read without a single allocation, from the header to the last partition.

use wire::messages::{FetchRequest, ProduceRequest};
use wire::{ApiKey, Message, Reader, Records, frame};

use crate::golden::{Line, lines};

fn requests(name: &str) -> Vec<Line> {
    let found: Vec<Line> = lines().filter(|line| line.name == name).collect();
    assert!(!found.is_empty(), "no transcript of {name}");
    found
}

fn framed(api: ApiKey, line: &Line) -> Vec<u8> {
    let mut w = frame::begin_request(api, line.version, 7, Some("a client")).unwrap();
    w.slice(&line.bytes);
    frame::finish_request(w).bytes[frame::SIZE_BYTES..].to_vec()
}

#[test]
fn produce_requests() {
    let mut partitions = 0;
    for line in requests("ProduceRequest") {
        let bytes = framed(ApiKey::Produce, &line);
        let cost = allocation_counter::measure(|| {
            let mut r = Reader::new(&bytes);
            let header = frame::decode_request_header(&mut r).unwrap();
            assert_eq!(header.client_id.as_deref(), Some("a client"));
            let request = ProduceRequest::decode(&mut r, header.api_version).unwrap();
            for topic in &request.topic_data {
                for partition in &topic.partition_data {
                    partitions += 1;
                    let records = partition.records.as_ref();
                    assert!(records.is_none_or(|records| matches!(records, Records::Borrowed(_))));
                }
            }
        });
        assert_eq!(cost.count_total, 0, "version {} {}", line.version, line.variant);
    }
    assert!(partitions > 100);
}

#[test]
fn fetch_requests() {
    let mut partitions = 0;
    for line in requests("FetchRequest") {
        let bytes = framed(ApiKey::Fetch, &line);
        let cost = allocation_counter::measure(|| {
            let mut r = Reader::new(&bytes);
            let header = frame::decode_request_header(&mut r).unwrap();
            let request = FetchRequest::decode(&mut r, header.api_version).unwrap();
            for topic in &request.topics {
                partitions += topic.partitions.iter().count();
            }
            for forgotten in &request.forgotten_topics_data {
                partitions += forgotten.partitions.iter().count();
            }
        });
        assert_eq!(cost.count_total, 0, "version {} {}", line.version, line.variant);
    }
    assert!(partitions > 100);
}
