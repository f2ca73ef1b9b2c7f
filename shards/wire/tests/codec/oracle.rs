//! The `kafka-protocol` crate reads what we write and writes what we read, for the messages and
//! versions that both know (it stops at Kafka 4.1).
//!
//! Two messages are left to the transcripts: LeaderChangeMessage and VotersRecord have a field
//! named Version, which that crate takes for the version of the structures after it.

use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message, VersionRange};

use crate::model::Model;
use crate::probe::probe;
use crate::property::Random;

/// Rounds over every message and version.
const ROUNDS: u64 = 4;

struct Oracle {
    name: &'static str,
    versions: VersionRange,
    recode: fn(i16, &[u8]) -> Result<Vec<u8>, String>,
}

fn recode<M: Message + Decodable + Encodable>(
    version: i16,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let mut rest = bytes;
    let message = M::decode(&mut rest, version).map_err(|e| e.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes left", rest.len()));
    }
    let mut out = Vec::new();
    message.encode(&mut out, version).map_err(|e| e.to_string())?;
    Ok(out)
}

macro_rules! oracles {
    ($($name:ident)*) => {
        static ORACLES: &[Oracle] = &[$(Oracle {
            name: stringify!($name),
            versions: theirs::$name::VERSIONS,
            recode: recode::<theirs::$name>,
        }),*];
    };
}

oracles! {
    AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnRequest
    AddPartitionsToTxnResponse AddRaftVoterRequest AddRaftVoterResponse
    AllocateProducerIdsRequest AllocateProducerIdsResponse AlterClientQuotasRequest
    AlterClientQuotasResponse AlterConfigsRequest AlterConfigsResponse
    AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse
    AlterPartitionRequest AlterPartitionResponse AlterReplicaLogDirsRequest
    AlterReplicaLogDirsResponse AlterShareGroupOffsetsRequest AlterShareGroupOffsetsResponse
    AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse ApiVersionsRequest
    ApiVersionsResponse AssignReplicasToDirsRequest AssignReplicasToDirsResponse
    BeginQuorumEpochRequest BeginQuorumEpochResponse BrokerHeartbeatRequest
    BrokerHeartbeatResponse BrokerRegistrationRequest BrokerRegistrationResponse
    ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse ConsumerGroupHeartbeatRequest
    ConsumerGroupHeartbeatResponse ConsumerProtocolAssignment ConsumerProtocolSubscription
    ControllerRegistrationRequest ControllerRegistrationResponse CreateAclsRequest
    CreateAclsResponse CreateDelegationTokenRequest CreateDelegationTokenResponse
    CreatePartitionsRequest CreatePartitionsResponse CreateTopicsRequest CreateTopicsResponse
    DefaultPrincipalData DeleteAclsRequest DeleteAclsResponse DeleteGroupsRequest
    DeleteGroupsResponse DeleteRecordsRequest DeleteRecordsResponse
    DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsResponse DeleteShareGroupStateRequest
    DeleteShareGroupStateResponse DeleteTopicsRequest DeleteTopicsResponse DescribeAclsRequest
    DescribeAclsResponse DescribeClientQuotasRequest DescribeClientQuotasResponse
    DescribeClusterRequest DescribeClusterResponse DescribeConfigsRequest
    DescribeConfigsResponse DescribeDelegationTokenRequest DescribeDelegationTokenResponse
    DescribeGroupsRequest DescribeGroupsResponse DescribeLogDirsRequest DescribeLogDirsResponse
    DescribeProducersRequest DescribeProducersResponse DescribeQuorumRequest
    DescribeQuorumResponse DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse
    DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse DescribeTransactionsRequest
    DescribeTransactionsResponse DescribeUserScramCredentialsRequest
    DescribeUserScramCredentialsResponse ElectLeadersRequest ElectLeadersResponse
    EndQuorumEpochRequest EndQuorumEpochResponse EndTxnMarker EndTxnRequest EndTxnResponse
    EnvelopeRequest EnvelopeResponse ExpireDelegationTokenRequest ExpireDelegationTokenResponse
    FetchRequest FetchResponse FetchSnapshotRequest FetchSnapshotResponse
    FindCoordinatorRequest FindCoordinatorResponse GetTelemetrySubscriptionsRequest
    GetTelemetrySubscriptionsResponse HeartbeatRequest HeartbeatResponse
    IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse InitProducerIdRequest
    InitProducerIdResponse InitializeShareGroupStateRequest InitializeShareGroupStateResponse
    JoinGroupRequest JoinGroupResponse KRaftVersionRecord LeaveGroupRequest
    LeaveGroupResponse ListConfigResourcesRequest ListConfigResourcesResponse ListGroupsRequest
    ListGroupsResponse ListOffsetsRequest ListOffsetsResponse ListPartitionReassignmentsRequest
    ListPartitionReassignmentsResponse ListTransactionsRequest ListTransactionsResponse
    MetadataRequest MetadataResponse OffsetCommitRequest OffsetCommitResponse
    OffsetDeleteRequest OffsetDeleteResponse OffsetFetchRequest OffsetFetchResponse
    OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse ProduceRequest ProduceResponse
    PushTelemetryRequest PushTelemetryResponse ReadShareGroupStateRequest
    ReadShareGroupStateResponse ReadShareGroupStateSummaryRequest
    ReadShareGroupStateSummaryResponse RemoveRaftVoterRequest RemoveRaftVoterResponse
    RenewDelegationTokenRequest RenewDelegationTokenResponse SaslAuthenticateRequest
    SaslAuthenticateResponse SaslHandshakeRequest SaslHandshakeResponse ShareAcknowledgeRequest
    ShareAcknowledgeResponse ShareFetchRequest ShareFetchResponse ShareGroupDescribeRequest
    ShareGroupDescribeResponse ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse
    SnapshotFooterRecord SnapshotHeaderRecord SyncGroupRequest SyncGroupResponse
    TxnOffsetCommitRequest TxnOffsetCommitResponse UnregisterBrokerRequest
    UnregisterBrokerResponse UpdateFeaturesRequest UpdateFeaturesResponse
    UpdateRaftVoterRequest UpdateRaftVoterResponse VoteRequest VoteResponse
    WriteShareGroupStateRequest WriteShareGroupStateResponse WriteTxnMarkersRequest
    WriteTxnMarkersResponse
}

#[test]
fn both_write_the_same_bytes() {
    let model = Model::read();
    let mut checked = 0;
    for oracle in ORACLES {
        for typed in model.all().filter(|typed| typed.message.name == oracle.name) {
            let version = typed.version;
            if version < oracle.versions.min || version > oracle.versions.max {
                continue;
            }
            checked += 1;
            for round in 0..ROUNDS {
                let value = typed.fill(&mut Random(round));
                let ours = (probe(oracle.name).recode)(version, &typed.encode(&value)).unwrap();
                let theirs = (oracle.recode)(version, &ours.bytes);
                assert_eq!(theirs.as_ref(), Ok(&ours.bytes), "{} {version} {value:?}", oracle.name);
            }
        }
    }
    assert!(checked > 400, "only {checked} message versions are known to both");
}
