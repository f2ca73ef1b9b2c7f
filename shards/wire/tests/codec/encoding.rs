//! What the encoder leaves out, keeps apart, refuses, and leaves room for.

use std::borrow::Cow;

use wire::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use wire::messages::metadata_request::MetadataRequestTopic;
use wire::messages::produce_response::{LeaderIdAndEpoch, PartitionProduceResponse};
use wire::messages::produce_response::{ProduceResponse, TopicProduceResponse};
use wire::messages::{
    ApiVersionsResponse, CreateTopicsRequest, DeleteTopicsRequest, FetchResponse, MetadataRequest,
};
use wire::{ApiKey, Array, EncodeError, Message, Piece, Reader, Records, Writer, frame};

fn encode<'a>(message: &impl Message<'a>, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut w = Writer::new();
    message.encode(&mut w, version).map(|()| w.finish().bytes.to_vec())
}

fn metadata(
    topics: Option<Array<'static, MetadataRequestTopic<'static>>>,
) -> MetadataRequest<'static> {
    MetadataRequest { topics, ..Default::default() }
}

#[test]
fn null_and_empty_arrays_stay_apart() {
    let (all, none) = (metadata(None), metadata(Some(Array::default())));
    assert_eq!(encode(&all, 1), Ok(vec![0xff; 4]));
    assert_eq!(encode(&none, 1), Ok(vec![0; 4]));
    assert_eq!(encode(&all, 9), Ok(vec![0, 1, 0, 0, 0]));
    assert_eq!(encode(&none, 9), Ok(vec![1, 1, 0, 0, 0]));
    for (request, version) in [(&all, 1), (&all, 9), (&none, 1), (&none, 9)] {
        let bytes = encode(request, version).unwrap();
        assert_eq!(
            MetadataRequest::decode(&mut Reader::new(&bytes), version).as_ref(),
            Ok(request)
        );
    }
    let refused = EncodeError::Null { field: "MetadataRequest.Topics", version: 0 };
    assert_eq!(encode(&all, 0), Err(refused));
    assert_eq!(encode(&none, 0), Ok(vec![0; 4]));
}

#[test]
fn what_a_version_lacks_must_hold_its_default_unless_it_is_ignorable() {
    let quiet = MetadataRequest { allow_auto_topic_creation: false, ..metadata(None) };
    let field = "MetadataRequest.AllowAutoTopicCreation";
    assert_eq!(encode(&quiet, 3), Err(EncodeError::Field { field, version: 3 }));
    assert_eq!(encode(&quiet, 4), Ok(vec![0xff, 0xff, 0xff, 0xff, 0]));
    // LogStartOffset (version 5) is ignorable, CurrentLeader (version 10) is not.
    let partition = PartitionProduceResponse { log_start_offset: 9, ..Default::default() };
    let response = |partition| ProduceResponse {
        responses: vec![TopicProduceResponse {
            partition_responses: vec![partition].into(),
            ..Default::default()
        }]
        .into(),
        ..Default::default()
    };
    assert!(encode(&response(partition.clone()), 4).is_ok());
    let current_leader = LeaderIdAndEpoch { leader_id: 1, leader_epoch: 2 };
    let hinting = response(PartitionProduceResponse { current_leader, ..partition });
    let field = "PartitionProduceResponse.CurrentLeader";
    assert_eq!(encode(&hinting, 9), Err(EncodeError::Field { field, version: 9 }));
    assert!(encode(&hinting, 10).is_ok());
}

/// librdkafka up to 2.1 skips tagged fields one byte short, so -1 must not be written.
#[test]
fn tagged_fields_that_hold_their_default_are_left_out() {
    let mut response = ApiVersionsResponse::default();
    let bare = vec![0, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(response.finalized_features_epoch, -1);
    assert_eq!(encode(&response, 3), Ok(bare.clone()));
    response.finalized_features_epoch = 5;
    let tagged = [&bare[..7], &[1, 1, 8, 0, 0, 0, 0, 0, 0, 0, 5]].concat();
    assert_eq!(encode(&response, 3), Ok(tagged));
    // Tagged fields are ignorable here, so the layout of error answers stays writable.
    assert_eq!(encode(&response, 0), Ok(vec![0, 0, 0, 0, 0, 0]));
}

#[test]
fn versions_outside_the_schema_and_long_texts_are_refused() {
    let request = CreateTopicsRequest::default();
    for version in [1, 8] {
        let refused = EncodeError::Version { message: "CreateTopicsRequest", version };
        assert_eq!(encode(&request, version), Err(refused));
    }
    let names = |length| DeleteTopicsRequest {
        topic_names: vec![Cow::Owned("x".repeat(length))].into(),
        ..Default::default()
    };
    for version in [3, 5] {
        assert!(encode(&names(0x7fff), version).is_ok());
        assert_eq!(encode(&names(0x8000), version), Err(EncodeError::Length(0x8000)));
    }
}

fn fetched(records: [Option<Records<'_>>; 3]) -> FetchResponse<'_> {
    let partition = |(index, records): (usize, _)| PartitionData {
        partition_index: index as i32,
        records,
        ..Default::default()
    };
    let topic = FetchableTopicResponse {
        partitions: records.into_iter().enumerate().map(partition).collect(),
        ..Default::default()
    };
    FetchResponse { responses: vec![topic].into(), ..Default::default() }
}

#[test]
fn detached_records_leave_room_for_exactly_their_bytes() {
    let batches = [vec![0xaa; 300], vec![0xbb; 5]];
    for version in ApiKey::Fetch.schema_versions() {
        let begin = || frame::begin_response(ApiKey::Fetch, version, 3);
        let [first, second] = [0, 1].map(|i| Records::Borrowed(&batches[i]));
        let mut whole = begin();
        fetched([Some(first), None, Some(second)]).encode(&mut whole, version).unwrap();
        let whole = frame::finish_response(whole);
        assert_eq!(whole.splices, []);

        let [first, second] = [0, 1].map(|i| Records::Detached(batches[i].len()));
        let mut spliced = begin();
        fetched([Some(first), None, Some(second)]).encode(&mut spliced, version).unwrap();
        let mut sent = Vec::new();
        let mut next = batches.iter();
        for piece in frame::finish_response(spliced).into_pieces() {
            match piece {
                Piece::Written(bytes) => sent.extend(bytes),
                Piece::Splice(length) => {
                    let batch = next.next().unwrap();
                    assert_eq!(batch.len(), length);
                    sent.extend(batch);
                }
            }
        }
        assert_eq!(next.next(), None);
        assert_eq!(sent, whole.bytes, "version {version}");
    }
}
