//! OffsetCommit and TxnOffsetCommit: who may commit, and the records it makes.

use wire::messages as m;
use wire::messages::offset_commit_response as answer;
use wire::messages::txn_offset_commit_response as txn_answer;
use wire::{ErrorCode, Text, Uuid};

use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::record::Record;
use crate::request::{Decision, Producer, Reply};
use crate::timers::{Key, Kind};

/// From this version on a commit outside of a transaction names topics by id.
const TOPIC_IDS_FROM: i16 = 10;
/// From this version on one in a transaction does, and its clients know the errors of consumer groups
/// (KIP-1319).
const TXN_TOPIC_IDS_FROM: i16 = 6;
/// From this version on clients know GROUP_ID_NOT_FOUND.
const GROUP_NOT_FOUND_FROM: i16 = 9;
/// What a record, or the batch of them, takes at most beside its names and metadata, in bytes.
const RECORD_BYTES: usize = 80;

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

impl Committer<'_> {
    fn names_topics_by_id(&self) -> bool {
        self.version >= if self.transactional { TXN_TOPIC_IDS_FROM } else { TOPIC_IDS_FROM }
    }

    fn knows_missing_groups(&self) -> bool {
        self.version >= if self.transactional { TXN_TOPIC_IDS_FROM } else { GROUP_NOT_FOUND_FROM }
    }

    /// The code as this client understands it.
    fn told(&self, code: ErrorCode) -> ErrorCode {
        match code {
            ErrorCode::StaleMemberEpoch
                if self.transactional && self.version < TXN_TOPIC_IDS_FROM =>
            {
                ErrorCode::IllegalGeneration
            }
            other => other,
        }
    }
}

/// A topic of a commit, as both requests give it.
struct OfferedTopic<'a> {
    name: Text<'a>,
    id: Uuid,
    partitions: Vec<Offered<'a>>,
}

struct Offered<'a> {
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: Option<Text<'a>>,
}

/// The topics of either request: the same, in types of their own.
macro_rules! offered {
    ($request:expr) => {{
        let topics = $request.topics.iter().map(|topic| OfferedTopic {
            name: topic.name,
            id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|part| Offered {
                    partition: part.partition_index,
                    offset: part.committed_offset,
                    leader_epoch: part.committed_leader_epoch,
                    metadata: part.committed_metadata,
                })
                .collect(),
        });
        topics.collect::<Vec<OfferedTopic<'_>>>()
    }};
}

/// The topics of either answer, with a code for each partition in their order.
macro_rules! answered {
    ($topics:expr, $codes:expr, $topic:ident, $partition:ident) => {{
        let mut codes = $codes.into_iter();
        let topics = $topics.iter().map(|topic| $topic {
            name: String::from(&*topic.name).into(),
            topic_id: topic.id,
            partitions: topic
                .partitions
                .iter()
                .zip(&mut codes)
                .map(|(part, code)| $partition {
                    partition_index: part.partition,
                    error_code: code.code(),
                })
                .collect(),
        });
        topics.collect()
    }};
}

/// What becomes of a topic of a commit.
struct Found {
    name: String,
    id: Uuid,
    partitions: i32,
    /// The topic itself is not there.
    unknown: Option<ErrorCode>,
}

impl Found {
    fn unknown(&self, offered: &Offered<'_>) -> Option<ErrorCode> {
        let is_there = (0..self.partitions).contains(&offered.partition);
        self.unknown.or((!is_there).then_some(ErrorCode::UnknownTopicOrPartition))
    }
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
            retention_ms => ctx.wall_ms.saturating_add(retention_ms),
        };
        let topics = offered!(request);
        let codes = self.commit(&committer, &topics, expire_ms, ctx, out);
        use answer::{
            OffsetCommitResponsePartition as Partition, OffsetCommitResponseTopic as Topic,
        };
        let topics = answered!(topics, codes, Topic, Partition);
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
        let topics = offered!(request);
        let codes = self.commit(&committer, &topics, -1, ctx, out);
        use txn_answer::{
            TxnOffsetCommitResponsePartition as Partition, TxnOffsetCommitResponseTopic as Topic,
        };
        let topics = answered!(topics, codes, Topic, Partition);
        if !out.records.is_empty() {
            out.producer =
                Some(Producer { id: request.producer_id, epoch: request.producer_epoch });
        }
        let reply = m::TxnOffsetCommitResponse { throttle_time_ms: 0, topics };
        out.reply(ctx.token, Reply::TxnOffsetCommit(reply));
    }

    /// Makes the records of a commit. Returns a code for each partition, in their order.
    ///
    /// The group is asked only about partitions that exist. If it refuses one of them, or the records
    /// would not fit into a batch, none of these is committed.
    fn commit(
        &mut self,
        committer: &Committer<'_>,
        topics: &[OfferedTopic<'_>],
        expire_ms: i64,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) -> Vec<ErrorCode> {
        let found: Vec<Found> = topics.iter().map(|topic| find(ctx, committer, topic)).collect();
        let all = || {
            let topics = found.iter().zip(topics);
            topics.flat_map(|(found, topic)| topic.partitions.iter().map(move |it| (found, it)))
        };
        let known = || all().filter(|(found, offered)| found.unknown(offered).is_none());
        let allowed = match known().next() {
            None => Ok(()),
            Some(_) => self.may_commit(committer),
        };
        if allowed.is_ok() && known().next().is_some() {
            self.heard_from(committer, ctx.now_ms);
        }
        let accepted = || known().filter(|(_, offered)| !self.is_metadata_too_long(offered));
        let allowed = allowed.and_then(|()| {
            let partitions = accepted().map(|(found, offered)| (found.id, offered.partition));
            self.may_commit_partitions(committer, partitions)
        });
        let most = self.config.record_bytes_max;
        let mut records = Vec::new();
        let mut bytes = RECORD_BYTES;
        let made = allowed.map_err(|refusal| committer.told(refusal.code)).and_then(|()| {
            for (found, offered) in accepted() {
                // Each record repeats the names, so a small request may ask for records of any size.
                let metadata = offered.metadata.as_deref().unwrap_or_default();
                bytes += RECORD_BYTES + committer.group.len() + found.name.len() + metadata.len();
                if bytes > most {
                    return Err(ErrorCode::UnknownServerError);
                }
                records.push(record(committer.group, found, offered, expire_ms, ctx));
            }
            Ok(())
        });
        if made.is_ok() {
            out.records.append(&mut records);
        }
        let code_of = |(found, offered): (&Found, &Offered<'_>)| {
            let too_long = || self.is_metadata_too_long(offered);
            found.unknown(offered).or(made.err()).unwrap_or_else(|| match too_long() {
                true => ErrorCode::OffsetMetadataTooLarge,
                false => ErrorCode::None,
            })
        };
        all().map(code_of).collect()
    }

    /// Kafka counts as Java does, in UTF-16 units.
    fn is_metadata_too_long(&self, offered: &Offered<'_>) -> bool {
        let limit = self.config.offset_metadata_max;
        let metadata = offered.metadata.as_deref().unwrap_or_default();
        metadata.len() > limit && metadata.encode_utf16().count() > limit
    }

    fn may_commit(&self, committer: &Committer<'_>) -> Result<(), Refusal> {
        match self.groups.get(committer.group) {
            None if committer.epoch < 0 => Ok(()),
            None if committer.knows_missing_groups() => Err(Refusal::new(
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

fn find(ctx: &Context<'_>, committer: &Committer<'_>, topic: &OfferedTopic<'_>) -> Found {
    let by_id = committer.names_topics_by_id();
    let (name, id) = resolve(ctx, &topic.name, topic.id, by_id);
    let unknown = match by_id {
        true => ErrorCode::UnknownTopicId,
        false => ErrorCode::UnknownTopicOrPartition,
    };
    let partitions = name.as_deref().map_or(0, |name| partition_count(ctx, name));
    let unknown = name.is_none().then_some(unknown);
    Found { name: name.unwrap_or_default(), id, partitions, unknown }
}

fn record(
    group: &str,
    topic: &Found,
    offered: &Offered<'_>,
    expire_ms: i64,
    ctx: &Context<'_>,
) -> Record<'static> {
    let key = m::OffsetCommitKey {
        group: String::from(group).into(),
        topic: topic.name.clone().into(),
        partition: offered.partition,
    };
    let value = m::OffsetCommitValue {
        offset: offered.offset,
        leader_epoch: offered.leader_epoch,
        metadata: String::from(offered.metadata.as_deref().unwrap_or_default()).into(),
        commit_timestamp: ctx.wall_ms,
        expire_timestamp: expire_ms,
        topic_id: topic.id,
    };
    Record::OffsetCommit(key, Some(value))
}

/// Number of partitions of a topic; none if it is not there.
pub(super) fn partition_count(ctx: &Context<'_>, topic: &str) -> i32 {
    ctx.topics.by_name(topic).map_or(0, |topic| topic.partitions)
}

/// Name and id of the topic that a request names by one of them; no name if there is none.
pub(super) fn resolve(
    ctx: &Context<'_>,
    name: &str,
    id: Uuid,
    by_id: bool,
) -> (Option<String>, Uuid) {
    if by_id {
        return (ctx.topics.name_of(id), id);
    }
    match ctx.topics.id_of(name) {
        Some(id) => (Some(String::from(name)), id),
        None => (None, Uuid::ZERO),
    }
}
