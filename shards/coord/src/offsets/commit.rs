//! OffsetCommit and TxnOffsetCommit: who may commit, and the records it makes.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::offset_commit_response as answer;
use wire::messages::txn_offset_commit_response as txn_answer;
use wire::{Array, Uuid};

use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::record::Record;
use crate::request::{Decision, Producer, Reply};
use crate::timers::{Key, Kind};

/// Who commits, as both requests say it.
pub(crate) struct Committer<'r> {
    pub group: &'r str,
    pub member: &'r str,
    pub instance: Option<&'r str>,
    /// Generation of a classic member, epoch of a consumer; below 0 for neither.
    pub epoch: i32,
    pub version: i16,
    pub transactional: bool,
}

/// One partition's offset, as both requests give it.
struct Offered<'r> {
    topic: &'r str,
    topic_id: Uuid,
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<&'r str>,
}

impl Coordinator {
    pub(crate) fn offset_commit(
        &mut self,
        request: &m::OffsetCommitRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let committer = Committer {
            group: &request.group_id,
            member: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            epoch: request.generation_id_or_member_epoch,
            version: ctx.version,
            transactional: false,
        };
        let expire_ms = match request.retention_time_ms {
            ..0 => -1,
            retention_ms => ctx.now_ms.saturating_add(retention_ms),
        };
        let allowed = self.may_commit(&committer).and_then(|()| {
            let topics = request.topics.iter().flat_map(|topic| {
                let (_, id) = resolve(ctx, &topic.name, topic.topic_id);
                topic
                    .partitions
                    .iter()
                    .map(move |part| (id, part.partition_index))
                    .collect::<Vec<_>>()
            });
            self.may_commit_partitions(&committer, topics)
        });
        let refused = allowed.err().map(|refusal| refusal.code);
        if refused.is_none() {
            self.heard_from(&committer, ctx.now_ms);
        }
        let topics = request.topics.iter().map(|topic| {
            let (name, topic_id) = resolve(ctx, &topic.name, topic.topic_id);
            // Unknown topics are told first: the group is not asked about them.
            let by_id = topic.name.is_empty() && !topic.topic_id.is_zero();
            let unknown = name.is_none().then(|| unknown_topic(by_id));
            let count = partition_count(ctx, name.as_deref().unwrap_or_default());
            let partitions = topic.partitions.iter().map(|part| {
                let is_there = (0..count).contains(&part.partition_index);
                let unknown = unknown.or((!is_there).then_some(ErrorCode::UnknownTopicOrPartition));
                let offered = Offered {
                    topic: name.as_deref().unwrap_or_default(),
                    topic_id,
                    partition: part.partition_index,
                    offset: part.committed_offset,
                    leader_epoch: part.committed_leader_epoch,
                    metadata: part.committed_metadata.as_deref(),
                };
                let code = unknown
                    .or(refused)
                    .unwrap_or_else(|| self.offer(&committer, &offered, expire_ms, ctx, out));
                answer::OffsetCommitResponsePartition {
                    partition_index: part.partition_index,
                    error_code: code.code(),
                }
            });
            let partitions = partitions.collect();
            answer::OffsetCommitResponseTopic {
                name: topic.name.clone().into_owned().into(),
                topic_id: topic.topic_id,
                partitions,
            }
        });
        let topics = topics.collect();
        let reply = m::OffsetCommitResponse { throttle_time_ms: 0, topics };
        out.reply(ctx.token, Reply::OffsetCommit(reply));
    }

    /// Offsets of a transaction. The records belong in a transactional batch of the producer, whose
    /// epoch the log has checked by the time they are appended.
    pub(crate) fn txn_offset_commit(
        &mut self,
        request: &m::TxnOffsetCommitRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let committer = Committer {
            group: &request.group_id,
            member: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            epoch: request.generation_id_or_member_epoch,
            version: ctx.version,
            transactional: true,
        };
        let refused = match self.may_commit(&committer) {
            Ok(()) => None,
            Err(refusal) if refusal.code == ErrorCode::StaleMemberEpoch => {
                Some(ErrorCode::IllegalGeneration)
            }
            Err(refusal) => Some(refusal.code),
        };
        let topics = request.topics.iter().map(|topic| {
            let (name, topic_id) = resolve(ctx, &topic.name, topic.topic_id);
            // Unknown topics are told first: the group is not asked about them.
            let by_id = topic.name.is_empty() && !topic.topic_id.is_zero();
            let unknown = name.is_none().then(|| unknown_topic(by_id));
            let count = partition_count(ctx, name.as_deref().unwrap_or_default());
            let partitions = topic.partitions.iter().map(|part| {
                let is_there = (0..count).contains(&part.partition_index);
                let unknown = unknown.or((!is_there).then_some(ErrorCode::UnknownTopicOrPartition));
                let offered = Offered {
                    topic: name.as_deref().unwrap_or_default(),
                    topic_id,
                    partition: part.partition_index,
                    offset: part.committed_offset,
                    leader_epoch: part.committed_leader_epoch,
                    metadata: part.committed_metadata.as_deref(),
                };
                let code = unknown
                    .or(refused)
                    .unwrap_or_else(|| self.offer(&committer, &offered, -1, ctx, out));
                txn_answer::TxnOffsetCommitResponsePartition {
                    partition_index: part.partition_index,
                    error_code: code.code(),
                }
            });
            let partitions = partitions.collect();
            txn_answer::TxnOffsetCommitResponseTopic {
                name: topic.name.clone().into_owned().into(),
                topic_id: topic.topic_id,
                partitions,
            }
        });
        let topics: Array<'static, _> = topics.collect();
        if !out.records.is_empty() {
            out.producer =
                Some(Producer { id: request.producer_id, epoch: request.producer_epoch });
        }
        let reply = m::TxnOffsetCommitResponse { throttle_time_ms: 0, topics };
        out.reply(ctx.token, Reply::TxnOffsetCommit(reply));
    }

    /// Makes the record of one offset, or says what is wrong with it.
    fn offer(
        &self,
        committer: &Committer<'_>,
        offered: &Offered<'_>,
        expire_ms: i64,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> ErrorCode {
        let metadata = offered.metadata.unwrap_or_default();
        let limit = self.config.offset_metadata_max;
        if metadata.len() > limit && metadata.encode_utf16().count() > limit {
            return ErrorCode::OffsetMetadataTooLarge;
        }
        let key = m::OffsetCommitKey {
            group: String::from(committer.group).into(),
            topic: String::from(offered.topic).into(),
            partition: offered.partition,
        };
        let value = m::OffsetCommitValue {
            offset: offered.offset,
            leader_epoch: offered.leader_epoch,
            metadata: String::from(metadata).into(),
            commit_timestamp: ctx.now_ms,
            expire_timestamp: expire_ms,
            topic_id: offered.topic_id,
        };
        out.records.push(Record::OffsetCommit(key, Some(value)));
        ErrorCode::None
    }

    fn may_commit(&self, committer: &Committer<'_>) -> Result<(), Refusal> {
        match self.groups.get(committer.group) {
            None if committer.epoch < 0 => Ok(()),
            None if !committer.transactional && committer.version >= 9 => Err(Refusal::new(
                ErrorCode::GroupIdNotFound,
                format!("Group {} not found.", committer.group),
            )),
            None => Err(ErrorCode::IllegalGeneration.into()),
            Some(Group::Classic(group)) => group.may_commit(committer),
            Some(Group::Consumer(group)) => group.may_commit(committer),
        }
    }

    /// A consumer that commits with an earlier epoch may do so for partitions it has had since then.
    fn may_commit_partitions(
        &self,
        committer: &Committer<'_>,
        partitions: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), Refusal> {
        match self.groups.get(committer.group) {
            Some(Group::Consumer(group)) => group.may_commit_partitions(committer, partitions),
            _ => Ok(()),
        }
    }

    /// A commit is a sign of life of a classic member.
    fn heard_from(&mut self, committer: &Committer<'_>, now_ms: i64) {
        let Some((id, group)) = self.groups.get_key_value(committer.group) else { return };
        let Group::Classic(group) = group else { return };
        if let Some((member, due_ms)) = group.session_after_commit(committer.member, now_ms) {
            self.timers.set(Key::member(Kind::Session, id, &member), due_ms);
        }
    }
}

fn unknown_topic(by_id: bool) -> ErrorCode {
    match by_id {
        true => ErrorCode::UnknownTopicId,
        false => ErrorCode::UnknownTopicOrPartition,
    }
}

/// Number of partitions of a topic; none if it is not there.
pub(super) fn partition_count(ctx: &Context<'_>, topic: &str) -> i32 {
    ctx.topics.by_name(topic).map_or(0, |topic| topic.partitions)
}

/// Name and id of the topic a request names by either; no name if there is none.
pub(super) fn resolve(ctx: &Context<'_>, name: &str, id: Uuid) -> (Option<String>, Uuid) {
    if name.is_empty() && !id.is_zero() {
        return (ctx.topics.name_of(id), id);
    }
    match ctx.topics.id_of(name) {
        Some(id) => (Some(String::from(name)), id),
        None => (None, Uuid::ZERO),
    }
}
