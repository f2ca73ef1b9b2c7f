//! The one place that maps the rooms' errors to Kafka's error codes.

use log::{AppendError, LogError, ProducerRejection, ReadError};
use wire::ErrorCode;

pub(crate) fn of_append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Producer(ProducerRejection::OutOfOrder { .. }) => {
            ErrorCode::OutOfOrderSequenceNumber
        }
        AppendError::Producer(ProducerRejection::InvalidEpoch { .. }) => {
            ErrorCode::InvalidProducerEpoch
        }
        AppendError::Producer(ProducerRejection::NotTransactional { .. }) => {
            ErrorCode::InvalidTxnState
        }
        AppendError::Producer(ProducerRejection::CoordinatorFenced { .. }) => {
            ErrorCode::TransactionCoordinatorFenced
        }
        // By hand, in Kafka's words: it takes the right to act as a broker.
        AppendError::Producer(ProducerRejection::OnlyByCoordinator { .. }) => {
            ErrorCode::ClusterAuthorizationFailed
        }
        // What clients of every version try again by themselves.
        AppendError::Producer(ProducerRejection::TooManyOpen { .. }) => {
            ErrorCode::NotEnoughReplicas
        }
        // The caller waits for room instead of answering this.
        AppendError::Full => ErrorCode::RequestTimedOut,
        // Closed by a delete or a move: the client looks for the leader again.
        AppendError::Closed(_) => ErrorCode::NotLeaderOrFollower,
        AppendError::Poisoned(_) => ErrorCode::KafkaStorageError,
        AppendError::OffsetsExhausted(_) => ErrorCode::KafkaStorageError,
        AppendError::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
        AppendError::Marker(_) => ErrorCode::UnknownServerError,
    }
}

/// What the client of a group is told where its coordinator could not append. Clients look for the
/// coordinator again, or try again.
pub(crate) fn of_coordinator(appending: ErrorCode) -> ErrorCode {
    match appending {
        ErrorCode::NotLeaderOrFollower | ErrorCode::KafkaStorageError => ErrorCode::NotCoordinator,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::NotEnoughReplicas
        | ErrorCode::NotEnoughReplicasAfterAppend
        | ErrorCode::RequestTimedOut => ErrorCode::CoordinatorNotAvailable,
        _ => ErrorCode::UnknownServerError,
    }
}

pub(crate) fn of_log(error: &LogError) -> ErrorCode {
    match error {
        LogError::Storage(_) | LogError::Foreign { .. } | LogError::Missing(_) => {
            ErrorCode::KafkaStorageError
        }
        // Clients tell the application; KAFKA_STORAGE_ERROR they would retry in silence for good.
        LogError::Corrupt { .. } => ErrorCode::CorruptMessage,
        LogError::Closed(_) | LogError::Copied(_) => ErrorCode::NotLeaderOrFollower,
        LogError::Trimmed { .. } | LogError::BeyondEnd { .. } => ErrorCode::OffsetOutOfRange,
    }
}

pub(crate) fn of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
    }
}
