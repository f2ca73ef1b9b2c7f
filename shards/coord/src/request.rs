//! What goes in and what comes out.
//!
//! A decision's records are already part of the coordinator's state. The caller appends them to the
//! partition as one batch, or several where the decision says that it may be cut, and lets the
//! answers go once everything appended so far is acknowledged (also for decisions without records:
//! an answer may tell of what an earlier decision wrote). When an append fails the caller throws
//! the coordinator away and loads another from the log.

use wire::messages as m;

use crate::context::Token;
use crate::offsets::tombstone;
use crate::record::Record;

/// A request for groups of this partition. Those that the protocol lets span groups come one by
/// one.
#[derive(Clone, Copy, Debug)]
pub enum Request<'r, 'a> {
    JoinGroup(&'r m::JoinGroupRequest<'a>),
    SyncGroup(&'r m::SyncGroupRequest<'a>),
    Heartbeat(&'r m::HeartbeatRequest<'a>),
    LeaveGroup(&'r m::LeaveGroupRequest<'a>),
    OffsetCommit(&'r m::OffsetCommitRequest<'a>),
    TxnOffsetCommit(&'r m::TxnOffsetCommitRequest<'a>),
    OffsetFetch {
        group: &'r m::offset_fetch_request::OffsetFetchRequestGroup<'a>,
        require_stable: bool,
    },
    OffsetDelete(&'r m::OffsetDeleteRequest<'a>),
    DescribeGroup(&'r str),
    ListGroups(&'r m::ListGroupsRequest<'a>),
    DeleteGroup(&'r str),
    ConsumerGroupHeartbeat(&'r m::ConsumerGroupHeartbeatRequest<'a>),
    ConsumerGroupDescribe(&'r str),
}

/// The answer to a request, in the shape of the version it came in.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    JoinGroup(m::JoinGroupResponse<'static>),
    SyncGroup(m::SyncGroupResponse<'static>),
    Heartbeat(m::HeartbeatResponse),
    LeaveGroup(m::LeaveGroupResponse<'static>),
    OffsetCommit(m::OffsetCommitResponse<'static>),
    TxnOffsetCommit(m::TxnOffsetCommitResponse<'static>),
    OffsetFetch(m::offset_fetch_response::OffsetFetchResponseGroup<'static>),
    OffsetDelete(m::OffsetDeleteResponse<'static>),
    DescribeGroup(m::describe_groups_response::DescribedGroup<'static>),
    ListGroups(m::ListGroupsResponse<'static>),
    DeleteGroup(m::delete_groups_response::DeletableGroupResult<'static>),
    ConsumerGroupHeartbeat(m::ConsumerGroupHeartbeatResponse<'static>),
    ConsumerGroupDescribe(m::consumer_group_describe_response::DescribedGroup<'static>),
}

/// Whose transaction the records of a decision belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
}

/// What to append, and what to answer once it is acknowledged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub records: Vec<Record<'static>>,
    /// Where the records may be divided among batches, if one would be too large: numbers of
    /// records, ascending, after which one may end. What stands between two of these belongs
    /// together.
    pub cuts: Vec<usize>,
    /// Set if the records are a transactional batch of this producer.
    pub producer: Option<Producer>,
    /// A request whose token is not here waits: its answer comes with a later decision.
    pub replies: Vec<(Token, Reply)>,
    /// How many of the records the coordinator has applied.
    pub(crate) applied: usize,
}

impl Decision {
    pub(crate) fn reply(&mut self, token: Token, reply: Reply) {
        self.replies.push((token, reply));
    }

    /// An offset is gone, whatever comes of the others.
    pub(crate) fn bury(&mut self, group: &str, topic: &str, partition: i32) {
        self.records.push(tombstone(group, topic, partition));
        self.cut();
    }

    /// What comes from now on does not belong to what is there.
    pub(crate) fn cut(&mut self) {
        let count = self.records.len();
        if count > self.cuts.last().copied().unwrap_or(0) {
            self.cuts.push(count);
        }
    }
}
