//! OffsetFetch and OffsetDelete.

use wire::ErrorCode;
use wire::messages as m;
use wire::messages::offset_delete_response as deleted;
use wire::messages::offset_fetch_request as asked;
use wire::messages::offset_fetch_response as answer;
use wire::{Array, Uuid};

use super::commit::{partition_count, resolve};
use super::{ByPartition, Committed, tombstone};
use crate::context::Context;
use crate::coordinator::{Coordinator, Group};
use crate::error::Refusal;
use crate::request::{Decision, Reply};

/// The first version in which topics go by id.
const TOPIC_IDS_FROM: i16 = 10;

impl Coordinator {
    pub(crate) fn offset_fetch(
        &self,
        request: &asked::OffsetFetchRequestGroup<'_>,
        require_stable: bool,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let group = &*request.group_id;
        let mut reply = answer::OffsetFetchResponseGroup {
            group_id: String::from(group).into(),
            ..Default::default()
        };
        match self.may_fetch(request) {
            Err(refusal) => reply.error_code = refusal.code.code(),
            Ok(exists) => {
                reply.topics = match &request.topics {
                    Some(topics) => self.fetch_some(group, topics, exists, require_stable, ctx),
                    None if exists => self.fetch_all(group, require_stable, ctx),
                    None => Array::default(),
                };
            }
        }
        out.reply(ctx.token, Reply::OffsetFetch(reply));
    }

    /// Whether there is a group to fetch from.
    fn may_fetch(&self, request: &asked::OffsetFetchRequestGroup<'_>) -> Result<bool, Refusal> {
        match self.groups.get(&*request.group_id) {
            None => Ok(false),
            Some(Group::Classic(_)) => Ok(true),
            Some(Group::Consumer(group)) => {
                group.may_fetch(request.member_id.as_deref(), request.member_epoch).map(|()| true)
            }
        }
    }

    fn fetch_some(
        &self,
        group: &str,
        topics: &Array<'_, asked::OffsetFetchRequestTopics<'_>>,
        exists: bool,
        require_stable: bool,
        ctx: &Context<'_>,
    ) -> Array<'static, answer::OffsetFetchResponseTopics<'static>> {
        let topic_answer = |topic: asked::OffsetFetchRequestTopics<'_>| {
            let by_id = ctx.version >= TOPIC_IDS_FROM;
            let (name, id) = resolve(ctx, &topic.name, topic.topic_id, by_id);
            let unknown_id = by_id && name.is_none();
            // An offset may outlive its topic by name, so a name without a topic still answers.
            let name = name.unwrap_or_else(|| String::from(&*topic.name));
            let partitions = topic.partition_indexes.iter().map(|partition| {
                if unknown_id {
                    return nothing(partition, ErrorCode::UnknownTopicId);
                }
                if require_stable && self.offsets.is_pending(group, &name, partition) {
                    return nothing(partition, ErrorCode::UnstableOffsetCommit);
                }
                let committed = self.offsets.get(group, &name, partition).filter(|_| exists);
                match committed.filter(|committed| !committed.is_of_another(id)) {
                    Some(committed) => something(partition, committed),
                    None => nothing(partition, ErrorCode::None),
                }
            });
            let partitions = partitions.collect();
            answer::OffsetFetchResponseTopics {
                name: topic.name.clone().into_owned().into(),
                topic_id: topic.topic_id,
                partitions,
            }
        };
        topics.iter().map(topic_answer).collect()
    }

    fn fetch_all(
        &self,
        group: &str,
        require_stable: bool,
        ctx: &Context<'_>,
    ) -> Array<'static, answer::OffsetFetchResponseTopics<'static>> {
        let Some(offsets) = self.offsets.group(group) else { return Array::default() };
        let by_id = ctx.version >= TOPIC_IDS_FROM;
        let topic_answer = |(name, parts): (&crate::Name, &ByPartition)| {
            let id = ctx.topics.id_of(name);
            if by_id && id.is_none() {
                return None;
            }
            let id = id.unwrap_or_default();
            let kept = parts.iter().filter(|(_, committed)| !committed.is_of_another(id));
            let partitions = kept.map(|(partition, committed)| {
                if require_stable && self.offsets.is_pending(group, name, partition) {
                    nothing(partition, ErrorCode::UnstableOffsetCommit)
                } else {
                    something(partition, committed)
                }
            });
            let partitions: Array<'static, _> = partitions.collect();
            Some(answer::OffsetFetchResponseTopics {
                name: if by_id { "".into() } else { String::from(&**name).into() },
                topic_id: if by_id { id } else { Uuid::ZERO },
                partitions,
            })
            .filter(|topic| !topic.partitions.is_empty())
        };
        offsets.topics().filter_map(topic_answer).collect()
    }

    pub(crate) fn offset_delete(
        &mut self,
        request: &m::OffsetDeleteRequest<'_>,
        ctx: &Context<'_>,
        out: &mut Decision,
    ) {
        let mut reply = m::OffsetDeleteResponse::default();
        let id = &*request.group_id;
        let refused = match self.groups.get(id) {
            None => Some(ErrorCode::GroupIdNotFound),
            Some(group) => group.may_delete_offsets().err().map(|refusal| refusal.code),
        };
        if let Some(code) = refused {
            reply.error_code = code.code();
            return out.reply(ctx.token, Reply::OffsetDelete(reply));
        }
        let topics = request.topics.iter().map(|topic| {
            let count = partition_count(ctx, &topic.name);
            let subscribed =
                self.groups.get(id).is_some_and(|group| group.is_subscribed_to(&topic.name));
            let partitions = topic.partitions.iter().map(|part| {
                let partition = part.partition_index;
                let known = self.offsets.get(id, &topic.name, partition).is_some()
                    || self.offsets.is_pending(id, &topic.name, partition);
                let exists = (0..count).contains(&partition) || (known && count > 0);
                let code = match (exists, subscribed) {
                    (false, _) => ErrorCode::UnknownTopicOrPartition,
                    (true, true) => ErrorCode::GroupSubscribedToTopic,
                    (true, false) => ErrorCode::None,
                };
                if code == ErrorCode::None && known {
                    out.records.push(tombstone(id, &topic.name, partition));
                }
                deleted::OffsetDeleteResponsePartition {
                    partition_index: partition,
                    error_code: code.code(),
                }
            });
            let partitions = partitions.collect();
            deleted::OffsetDeleteResponseTopic {
                name: topic.name.clone().into_owned().into(),
                partitions,
            }
        });
        reply.topics = topics.collect();
        out.reply(ctx.token, Reply::OffsetDelete(reply));
    }
}

fn something(
    partition: i32,
    committed: &Committed,
) -> answer::OffsetFetchResponsePartitions<'static> {
    answer::OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: committed.offset,
        committed_leader_epoch: committed.leader_epoch,
        metadata: Some(String::from(&*committed.metadata).into()),
        error_code: ErrorCode::None.code(),
    }
}

/// No offset: an answer, not an error, unless the code says so.
fn nothing(partition: i32, code: ErrorCode) -> answer::OffsetFetchResponsePartitions<'static> {
    answer::OffsetFetchResponsePartitions {
        partition_index: partition,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some("".into()),
        error_code: code.code(),
    }
}
