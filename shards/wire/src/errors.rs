//! Kafka's error codes: number, name, whether a client may try again, and what to say about it.
//!
//! Lives on every core; a table and nothing else. It never decides which code an internal error
//! becomes: that is the one mapping function of the broker.
//!
//! | policy    | what a client does                                     |
//! |-----------|--------------------------------------------------------|
//! | `Final`   | reports it to the application                          |
//! | `Retry`   | tries again after a pause                              |
//! | `Refresh` | asks for metadata (the coordinator) first, then retries |

use std::fmt;

/// What a standard client does when it is answered with a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Final,
    Retry,
    Refresh,
}

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $name:literal, $policy:ident, $message:literal;)+) => {
        /// An error code as it stands in a response (`int16`). `None` is success.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(#[doc = $message] $variant = $code,)+
        }

        impl ErrorCode {
            /// Every code, in ascending order.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)+];

            /// The code with this number, or nothing if Kafka has none.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(ErrorCode::$variant),)+
                    _ => None,
                }
            }

            /// Kafka's own name, as the tools print it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $name,)+
                }
            }

            /// What a standard client does with it.
            pub const fn policy(self) -> Policy {
                match self {
                    $(ErrorCode::$variant => Policy::$policy,)+
                }
            }

            /// A sentence for responses that carry one and have nothing better to say.
            pub const fn message(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $message,)+
                }
            }
        }
    };
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", Final,
        "the broker met an error it has no code for";
    None = 0, "NONE", Final, "no error";
    OffsetOutOfRange = 1, "OFFSET_OUT_OF_RANGE", Final,
        "the offset is outside the range this partition holds";
    CorruptMessage = 2, "CORRUPT_MESSAGE", Retry,
        "the record batch failed its checksum or its lengths do not add up";
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", Refresh,
        "this broker does not know the topic or partition";
    InvalidFetchSize = 4, "INVALID_FETCH_SIZE", Final, "the fetch size is not valid";
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", Refresh,
        "the partition has no leader at the moment";
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", Refresh,
        "this broker is not the leader or a replica of the partition";
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", Retry,
        "the request was not completed within its time limit";
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", Final, "the broker cannot be reached";
    ReplicaNotAvailable = 9, "REPLICA_NOT_AVAILABLE", Refresh, "the replica cannot be reached";
    MessageTooLarge = 10, "MESSAGE_TOO_LARGE", Final,
        "the record batch is larger than max.message.bytes allows";
    StaleControllerEpoch = 11, "STALE_CONTROLLER_EPOCH", Final,
        "the controller epoch is older than the current one";
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE", Final,
        "the metadata string of the committed offset is too large";
    NetworkException = 13, "NETWORK_EXCEPTION", Refresh,
        "the connection broke before the response arrived";
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS", Retry,
        "the coordinator is still loading its state";
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE", Refresh, "no coordinator is available";
    NotCoordinator = 16, "NOT_COORDINATOR", Refresh, "this broker is not the coordinator";
    InvalidTopicException = 17, "INVALID_TOPIC_EXCEPTION", Final,
        "the topic name is not valid or the topic may not be used this way";
    RecordListTooLarge = 18, "RECORD_LIST_TOO_LARGE", Final,
        "the record set is larger than a segment may be";
    NotEnoughReplicas = 19, "NOT_ENOUGH_REPLICAS", Retry,
        "fewer replicas are in sync than min.insync.replicas asks for";
    NotEnoughReplicasAfterAppend = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Retry,
        "the records were written, but to fewer in-sync replicas than asked for";
    InvalidRequiredAcks = 21, "INVALID_REQUIRED_ACKS", Final, "acks must be -1, 0 or 1";
    IllegalGeneration = 22, "ILLEGAL_GENERATION", Final,
        "the group generation is not the current one";
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL", Final,
        "the group's members share no protocol with this member";
    InvalidGroupId = 24, "INVALID_GROUP_ID", Final, "the group id is not valid";
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID", Final, "the group does not know this member";
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT", Final,
        "the session timeout is outside the range the broker allows";
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS", Final,
        "the group is rebalancing, so the member must join again";
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE", Final,
        "the offset commit is too large";
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", Final,
        "access to the topic is not authorised";
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED", Final,
        "access to the group is not authorised";
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", Final,
        "access to the cluster is not authorised";
    InvalidTimestamp = 32, "INVALID_TIMESTAMP", Final,
        "the record timestamp is outside the range the topic accepts";
    UnsupportedSaslMechanism = 33, "UNSUPPORTED_SASL_MECHANISM", Final,
        "the broker does not offer this SASL mechanism";
    IllegalSaslState = 34, "ILLEGAL_SASL_STATE", Final,
        "the request is not valid in this state of the SASL exchange";
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", Final,
        "the broker does not support this version of the API";
    TopicAlreadyExists = 36, "TOPIC_ALREADY_EXISTS", Final, "a topic with this name exists already";
    InvalidPartitions = 37, "INVALID_PARTITIONS", Final, "the number of partitions is not valid";
    InvalidReplicationFactor = 38, "INVALID_REPLICATION_FACTOR", Final,
        "the replication factor is not valid for this cluster";
    InvalidReplicaAssignment = 39, "INVALID_REPLICA_ASSIGNMENT", Final,
        "the replica assignment is not valid";
    InvalidConfig = 40, "INVALID_CONFIG", Final, "the configuration is not valid";
    NotController = 41, "NOT_CONTROLLER", Retry, "this broker is not the active controller";
    InvalidRequest = 42, "INVALID_REQUEST", Final, "the request contradicts itself or the protocol";
    UnsupportedForMessageFormat = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Final,
        "the message format on the broker does not support the request";
    PolicyViolation = 44, "POLICY_VIOLATION", Final, "the request violates a policy of the cluster";
    OutOfOrderSequenceNumber = 45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Final,
        "the producer's sequence number is not the next one expected";
    DuplicateSequenceNumber = 46, "DUPLICATE_SEQUENCE_NUMBER", Final,
        "the producer's sequence number was written before";
    InvalidProducerEpoch = 47, "INVALID_PRODUCER_EPOCH", Final,
        "the producer's epoch is older than the current one";
    InvalidTxnState = 48, "INVALID_TXN_STATE", Final,
        "the transaction is in a state that does not allow this";
    InvalidProducerIdMapping = 49, "INVALID_PRODUCER_ID_MAPPING", Final,
        "the producer id does not belong to this transactional id";
    InvalidTransactionTimeout = 50, "INVALID_TRANSACTION_TIMEOUT", Final,
        "the transaction timeout is larger than the broker allows";
    ConcurrentTransactions = 51, "CONCURRENT_TRANSACTIONS", Retry,
        "another operation on this transaction is still running";
    TransactionCoordinatorFenced = 52, "TRANSACTION_COORDINATOR_FENCED", Final,
        "the transaction coordinator was replaced by a newer one";
    TransactionalIdAuthorizationFailed = 53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Final,
        "access to the transactional id is not authorised";
    SecurityDisabled = 54, "SECURITY_DISABLED", Final, "security is not enabled on this broker";
    OperationNotAttempted = 55, "OPERATION_NOT_ATTEMPTED", Final,
        "the operation was not tried because another part of the request failed";
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", Refresh,
        "the broker cannot reach the log on its disk";
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", Final,
        "the log directory is not one of this broker's";
    SaslAuthenticationFailed = 58, "SASL_AUTHENTICATION_FAILED", Final,
        "SASL authentication failed";
    UnknownProducerId = 59, "UNKNOWN_PRODUCER_ID", Final,
        "the broker holds no state for this producer id";
    ReassignmentInProgress = 60, "REASSIGNMENT_IN_PROGRESS", Final,
        "the partition is being reassigned already";
    DelegationTokenAuthDisabled = 61, "DELEGATION_TOKEN_AUTH_DISABLED", Final,
        "delegation tokens are not enabled";
    DelegationTokenNotFound = 62, "DELEGATION_TOKEN_NOT_FOUND", Final,
        "the broker does not know this delegation token";
    DelegationTokenOwnerMismatch = 63, "DELEGATION_TOKEN_OWNER_MISMATCH", Final,
        "the delegation token belongs to another principal";
    DelegationTokenRequestNotAllowed = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", Final,
        "delegation tokens may not be handled over this connection";
    DelegationTokenAuthorizationFailed = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", Final,
        "access to the delegation token is not authorised";
    DelegationTokenExpired = 66, "DELEGATION_TOKEN_EXPIRED", Final,
        "the delegation token has expired";
    InvalidPrincipalType = 67, "INVALID_PRINCIPAL_TYPE", Final,
        "the principal type is not supported";
    NonEmptyGroup = 68, "NON_EMPTY_GROUP", Final, "the group still has members";
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND", Final, "the broker does not know this group";
    FetchSessionIdNotFound = 70, "FETCH_SESSION_ID_NOT_FOUND", Retry,
        "the broker does not know this fetch session";
    InvalidFetchSessionEpoch = 71, "INVALID_FETCH_SESSION_EPOCH", Retry,
        "the fetch session epoch is not the one expected";
    ListenerNotFound = 72, "LISTENER_NOT_FOUND", Refresh,
        "the leader has no listener of the name the request came in on";
    TopicDeletionDisabled = 73, "TOPIC_DELETION_DISABLED", Final,
        "topic deletion is disabled on this broker";
    FencedLeaderEpoch = 74, "FENCED_LEADER_EPOCH", Refresh,
        "the leader epoch in the request is older than the broker's";
    UnknownLeaderEpoch = 75, "UNKNOWN_LEADER_EPOCH", Retry,
        "the leader epoch in the request is newer than the broker's";
    UnsupportedCompressionType = 76, "UNSUPPORTED_COMPRESSION_TYPE", Final,
        "the compression type is not supported by this version of the API";
    StaleBrokerEpoch = 77, "STALE_BROKER_EPOCH", Final,
        "the broker epoch is older than the current one";
    OffsetNotAvailable = 78, "OFFSET_NOT_AVAILABLE", Retry,
        "the leader cannot tell this offset yet, so soon after its election";
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED", Final,
        "the member must join again with the member id it was given";
    PreferredLeaderNotAvailable = 80, "PREFERRED_LEADER_NOT_AVAILABLE", Refresh,
        "the preferred leader is not available";
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED", Final,
        "the group has as many members as it may have";
    FencedInstanceId = 82, "FENCED_INSTANCE_ID", Final,
        "another member has taken over this group instance id";
    EligibleLeadersNotAvailable = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", Refresh,
        "no replica that may lead is available";
    ElectionNotNeeded = 84, "ELECTION_NOT_NEEDED", Refresh, "the partition needs no election";
    NoReassignmentInProgress = 85, "NO_REASSIGNMENT_IN_PROGRESS", Final,
        "the partition is not being reassigned";
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC", Final,
        "the group is still subscribed to the topic";
    InvalidRecord = 87, "INVALID_RECORD", Final,
        "the record or the batch does not satisfy the rules of the broker";
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT", Retry,
        "offsets of an open transaction are not yet decided";
    ThrottlingQuotaExceeded = 89, "THROTTLING_QUOTA_EXCEEDED", Retry,
        "the client is over its quota";
    ProducerFenced = 90, "PRODUCER_FENCED", Final,
        "a newer producer has taken over this transactional id";
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", Final, "the resource does not exist";
    DuplicateResource = 92, "DUPLICATE_RESOURCE", Final, "the resource exists already";
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", Final,
        "the credential does not meet the broker's rules";
    InconsistentVoterSet = 94, "INCONSISTENT_VOTER_SET", Final,
        "the voter sets of sender and receiver differ";
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", Final, "the update version is not valid";
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", Final, "the features could not be updated";
    PrincipalDeserializationFailure = 97, "PRINCIPAL_DESERIALIZATION_FAILURE", Final,
        "the forwarded principal could not be read";
    SnapshotNotFound = 98, "SNAPSHOT_NOT_FOUND", Final, "the snapshot does not exist";
    PositionOutOfRange = 99, "POSITION_OUT_OF_RANGE", Final,
        "the position lies outside the snapshot";
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID", Refresh, "this broker does not know the topic id";
    DuplicateBrokerRegistration = 101, "DUPLICATE_BROKER_REGISTRATION", Final,
        "the broker id is registered already";
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", Final,
        "the broker id is not registered";
    InconsistentTopicId = 103, "INCONSISTENT_TOPIC_ID", Refresh,
        "the topic id in the log differs from the one in the request";
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", Final,
        "the cluster id in the request is not this cluster's";
    TransactionalIdNotFound = 105, "TRANSACTIONAL_ID_NOT_FOUND", Final,
        "the transactional id does not exist";
    FetchSessionTopicIdError = 106, "FETCH_SESSION_TOPIC_ID_ERROR", Retry,
        "the topic id of a partition in the fetch session has changed";
    IneligibleReplica = 107, "INELIGIBLE_REPLICA", Final,
        "the replica may not join the in-sync set";
    NewLeaderElected = 108, "NEW_LEADER_ELECTED", Final, "a newer leader has been elected";
    OffsetMovedToTieredStorage = 109, "OFFSET_MOVED_TO_TIERED_STORAGE", Final,
        "the offset is kept in tiered storage only";
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH", Final,
        "the member epoch has been fenced by the coordinator";
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID", Final,
        "the instance id is still used by another member of the group";
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR", Final,
        "the assignor is not offered by the broker";
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH", Final,
        "the member epoch is older than the current one";
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", Final,
        "the request was sent to the wrong kind of endpoint";
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", Final,
        "this kind of endpoint is not supported";
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", Final, "the controller id is not known";
    UnknownSubscriptionId = 117, "UNKNOWN_SUBSCRIPTION_ID", Final,
        "the telemetry subscription id is not current";
    TelemetryTooLarge = 118, "TELEMETRY_TOO_LARGE", Final,
        "the telemetry data is larger than the broker accepts";
    InvalidRegistration = 119, "INVALID_REGISTRATION", Final, "the registration is not valid";
    TransactionAbortable = 120, "TRANSACTION_ABORTABLE", Final,
        "the transaction cannot go on and must be aborted";
    InvalidRecordState = 121, "INVALID_RECORD_STATE", Final,
        "the record is not in the state the request expects";
    ShareSessionNotFound = 122, "SHARE_SESSION_NOT_FOUND", Retry,
        "the broker does not know this share session";
    InvalidShareSessionEpoch = 123, "INVALID_SHARE_SESSION_EPOCH", Retry,
        "the share session epoch is not the one expected";
    FencedStateEpoch = 124, "FENCED_STATE_EPOCH", Final,
        "the share coordinator has a newer state epoch";
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", Final,
        "the voter key does not match the receiver's";
    DuplicateVoter = 126, "DUPLICATE_VOTER", Final, "the voter is in the set already";
    VoterNotFound = 127, "VOTER_NOT_FOUND", Final, "the voter is not in the set";
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION", Final,
        "the regular expression is not valid";
    RebootstrapRequired = 129, "REBOOTSTRAP_REQUIRED", Final,
        "the client must start again from its bootstrap servers";
    StreamsInvalidTopology = 130, "STREAMS_INVALID_TOPOLOGY", Final,
        "the streams topology is not valid";
    StreamsInvalidTopologyEpoch = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH", Final,
        "the streams topology epoch is not the current one";
    StreamsTopologyFenced = 132, "STREAMS_TOPOLOGY_FENCED", Final,
        "the streams topology epoch has been fenced";
    ShareSessionLimitReached = 133, "SHARE_SESSION_LIMIT_REACHED", Retry,
        "the broker has no room for another share session";
    GroupDeletionFailed = 134, "GROUP_DELETION_FAILED", Final, "the group could not be deleted";
    StreamsTopologyDescriptionUpdateFailed = 135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", Final,
        "the streams topology description could not be updated";
    ControllerIdNotRegistered = 136, "CONTROLLER_ID_NOT_REGISTERED", Final,
        "the controller id is not registered";
}

impl ErrorCode {
    /// The number that goes on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether a client may send the same request again.
    pub const fn retriable(self) -> bool {
        !matches!(self.policy(), Policy::Final)
    }

    pub const fn is_error(self) -> bool {
        !matches!(self, ErrorCode::None)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_dense_and_round_trip() {
        for (i, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(usize::try_from(code.code() + 1), Ok(i), "{code}");
            assert_eq!(ErrorCode::from_code(code.code()), Some(*code));
        }
        assert_eq!(ErrorCode::ALL.len(), 138);
        assert_eq!(ErrorCode::from_code(-2), None);
        assert_eq!(ErrorCode::from_code(137), None);
    }

    #[test]
    fn names_match_variants_and_messages_follow_the_house_style() {
        for code in ErrorCode::ALL {
            let camel: String = code
                .name()
                .split('_')
                .map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()))
                .collect();
            assert_eq!(camel, format!("{code:?}"));
            let message = code.message();
            assert!(!message.is_empty());
            assert!(!message.ends_with('.'), "{message}");
        }
    }

    #[test]
    fn retry_policies() {
        assert_eq!(ErrorCode::NotLeaderOrFollower.policy(), Policy::Refresh);
        assert_eq!(ErrorCode::RequestTimedOut.policy(), Policy::Retry);
        assert_eq!(ErrorCode::InvalidRecord.policy(), Policy::Final);
        assert!(ErrorCode::CorruptMessage.retriable());
        assert!(!ErrorCode::MessageTooLarge.retriable());
        assert!(!ErrorCode::None.is_error());
        assert_eq!(ErrorCode::InvalidRecord.to_string(), "INVALID_RECORD (87)");
    }
}
