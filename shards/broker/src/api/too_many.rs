//! The answer to a request that names more than may be answered.
//!
//! Apache Kafka answers requests of any number of items that fit into a frame; here there are
//! bounds, as a small frame must not ask for gigabytes. Where an answer has a place for an error of
//! the whole it says INVALID_REQUEST, which clients do not retry. Where it has not, every item
//! would have to be named again, of which there are too many: the connection closes.

use wire::messages as m;
use wire::{ApiKey, ErrorCode, Message, frame};

use super::Request;
use crate::reply::{Close, Handled, Reply};

/// What it takes to answer a request without its items.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl Whole {
    pub fn of(request: &Request) -> Self {
        let (version, correlation_id) = (request.version, request.correlation_id);
        Whole { api: request.api, version, correlation_id }
    }

    /// What was handled, or the refusal of the whole request if that is where it ended.
    pub fn or_refused(self, handled: Handled) -> Handled {
        match handled {
            Err(close @ Close::TooManyItems { .. }) => self.refused(close),
            handled => handled,
        }
    }

    fn refused(self, close: Close) -> Handled {
        let error_code = ErrorCode::InvalidRequest.code();
        let why = || Some(close.to_string().into());
        match self.api {
            ApiKey::JoinGroup => self.encode(&m::JoinGroupResponse {
                error_code,
                generation_id: -1,
                // Versions before 7 cannot say that there is no protocol.
                protocol_name: (self.version < 7).then(|| "".into()),
                ..Default::default()
            }),
            ApiKey::SyncGroup => {
                self.encode(&m::SyncGroupResponse { error_code, ..Default::default() })
            }
            ApiKey::LeaveGroup => {
                self.encode(&m::LeaveGroupResponse { error_code, ..Default::default() })
            }
            ApiKey::ConsumerGroupHeartbeat => self.encode(&m::ConsumerGroupHeartbeatResponse {
                error_code,
                error_message: why(),
                ..Default::default()
            }),
            ApiKey::OffsetDelete => {
                self.encode(&m::OffsetDeleteResponse { error_code, ..Default::default() })
            }
            // Version 1 and from version 8 on there is an error for each partition or group only.
            ApiKey::OffsetFetch if (2..8).contains(&self.version) => {
                self.encode(&m::OffsetFetchResponse { error_code, ..Default::default() })
            }
            ApiKey::ListGroups => {
                self.encode(&m::ListGroupsResponse { error_code, ..Default::default() })
            }
            ApiKey::ListTransactions => {
                self.encode(&m::ListTransactionsResponse { error_code, ..Default::default() })
            }
            ApiKey::Fetch if self.version >= 7 => {
                self.encode(&m::FetchResponse { error_code, ..Default::default() })
            }
            ApiKey::Metadata if self.version >= 13 => {
                self.encode(&m::MetadataResponse { error_code, ..Default::default() })
            }
            ApiKey::DescribeLogDirs if self.version >= 3 => {
                self.encode(&m::DescribeLogDirsResponse { error_code, ..Default::default() })
            }
            ApiKey::UpdateFeatures => self.encode(&m::UpdateFeaturesResponse {
                error_code,
                error_message: why(),
                ..Default::default()
            }),
            ApiKey::AlterPartitionReassignments => {
                self.encode(&m::AlterPartitionReassignmentsResponse {
                    error_code,
                    error_message: why(),
                    ..Default::default()
                })
            }
            ApiKey::ListPartitionReassignments => {
                self.encode(&m::ListPartitionReassignmentsResponse {
                    error_code,
                    error_message: why(),
                    ..Default::default()
                })
            }
            _ => Err(close),
        }
    }

    fn encode<'a, M: Message<'a>>(self, response: &M) -> Handled {
        let mut writer = frame::begin_response(self.api, self.version, self.correlation_id);
        response.encode(&mut writer, self.version)?;
        Ok(Reply::encoded(frame::finish_response(writer).bytes))
    }
}
