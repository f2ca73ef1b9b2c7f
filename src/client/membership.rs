//! One member of a consumer group by the KIP-848 protocol: a task that sends heartbeats.
//!
//! Owns the member's id, epoch and what it is to have. The caller takes over what it is given, says
//! so with [`Membership::own`], and reads; it never waits for a heartbeat. The task has connections
//! of its own, so that reading never holds one up.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use reactor::Task;
use reactor::sync::Notify;
use wire::messages::consumer_group_heartbeat_request::TopicPartitions;
use wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use wire::{ErrorCode, Uuid};

use super::error::ClientError;
use super::groups::coordinator;
use super::{Backoff, Cluster};

/// Version 0 has the broker name the member; a broker that has this protocol has version 1 too.
const VERSIONS: RangeInclusive<i16> = 1..=1;
const JOIN: i32 = 0;
const LEAVE: i32 = -1;
/// How long the others wait for this member to give up partitions.
const REBALANCE_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Membership {
    shared: Rc<Shared>,
    /// Dropping it ends the heartbeats.
    task: Task<()>,
}

/// Something for the caller to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The group went on without this member: it has nothing, and this is another term.
    Lost { term: u64 },
    /// The partitions that it shall have.
    Partitions(Vec<i32>),
}

struct Shared {
    group: String,
    topic: String,
    member: String,
    state: RefCell<State>,
    /// The caller has something to look at.
    changed: Notify,
    /// The broker has something to be told.
    told: Notify,
}

struct State {
    epoch: i32,
    topic_id: Uuid,
    /// What the broker gives; `None` until it does.
    target: Option<Vec<i32>>,
    /// What the caller said that it has.
    owned: Vec<i32>,
    /// How often the broker has given up on the member. What it had in an earlier term is others'
    /// now.
    term: u64,
    leaving: bool,
    failed: Option<ClientError>,
}

impl State {
    fn begin() -> Self {
        State {
            epoch: JOIN,
            topic_id: Uuid::ZERO,
            target: None,
            owned: Vec::new(),
            term: 0,
            leaving: false,
            failed: None,
        }
    }
}

impl Membership {
    /// Begins to join. `cluster` is the task's own.
    pub fn join(cluster: Cluster, group: &str, topic: &str) -> Self {
        let mut id = [0; 16];
        reactor::fill_random(&mut id);
        let shared = Rc::new(Shared {
            group: group.to_owned(),
            topic: topic.to_owned(),
            member: Uuid::from_random(id).to_string(),
            state: RefCell::new(State::begin()),
            changed: Notify::new(),
            told: Notify::new(),
        });
        let task = reactor::spawn(run(cluster, shared.clone()));
        Membership { shared, task }
    }

    pub fn member(&self) -> &str {
        &self.shared.member
    }

    /// The member's epoch, if it is still in this term: for what it read then it may speak in no
    /// other.
    pub fn epoch_in(&self, term: u64) -> Option<i32> {
        self.shared.epoch_in(term)
    }

    /// What the member shall have, if that is not what it has; fails when the group is lost for
    /// good. `term`: the one that the caller knows of.
    pub fn news(&self, term: u64) -> Result<Option<News>, ClientError> {
        self.shared.news(term)
    }

    /// Resolves when there may be news. Listens from the call on.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        self.shared.changed.notified()
    }

    /// The member has these partitions now, and no others. Means nothing if the term is over.
    pub fn own(&self, term: u64, partitions: Vec<i32>) {
        self.shared.own(term, partitions);
    }

    /// Leaves the group, so that others need not wait for the session to end.
    pub async fn leave(self) {
        self.shared.state.borrow_mut().leaving = true;
        self.shared.told.notify_all();
        self.task.await;
    }
}

async fn run(mut cluster: Cluster, shared: Rc<Shared>) {
    let mut backoff: Option<Backoff> = None;
    loop {
        let told = shared.told.notified();
        let leaving = shared.state.borrow().leaving;
        let interval = match beat(&mut cluster, &shared, leaving).await {
            _ if leaving => return,
            Ok(answer) => {
                backoff = None;
                let interval = Duration::from_millis(answer.heartbeat_ms);
                shared.take_in(answer);
                interval
            }
            Err(error) => {
                let lost = matches!(
                    error.code(),
                    Some(ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId)
                );
                let waits = backoff.get_or_insert_with(|| Backoff::new(cluster.patience()));
                if lost {
                    shared.lose();
                } else if !error.retriable() {
                    return shared.fail(error);
                }
                if !waits.wait().await {
                    return shared.fail(error);
                }
                continue;
            }
        };
        reactor::race(told, reactor::sleep(interval)).await;
    }
}

struct Answer {
    epoch: i32,
    heartbeat_ms: u64,
    assignment: Option<(Uuid, Vec<i32>)>,
}

async fn beat(
    cluster: &mut Cluster,
    shared: &Shared,
    leaving: bool,
) -> Result<Answer, ClientError> {
    let node = coordinator(cluster, &shared.group).await?;
    let (epoch, topic_id, owned) = {
        let state = shared.state.borrow();
        (state.epoch, state.topic_id, state.owned.clone())
    };
    let joins = epoch == JOIN;
    let owned = match owned.is_empty() {
        true => Vec::new(),
        false => vec![TopicPartitions { topic_id, partitions: owned.into() }],
    };
    let request = ConsumerGroupHeartbeatRequest {
        group_id: shared.group.as_str().into(),
        member_id: shared.member.as_str().into(),
        member_epoch: if leaving { LEAVE } else { epoch },
        rebalance_timeout_ms: if joins { REBALANCE_TIMEOUT.as_millis() as i32 } else { -1 },
        subscribed_topic_names: joins.then(|| vec![shared.topic.as_str().into()].into()),
        topic_partitions: Some(owned.into()),
        ..Default::default()
    };
    let reply = cluster.call_node(node, &request, VERSIONS).await?;
    let answer: ConsumerGroupHeartbeatResponse<'_> = reply.decode()?;
    let what = format!("group {}", shared.group);
    ClientError::check(what, answer.error_code, answer.error_message.as_deref())?;
    let assignment = answer.assignment.map(|assignment| {
        let first = assignment.topic_partitions.iter().next();
        first.map_or((Uuid::ZERO, Vec::new()), |topic| {
            let mut partitions = topic.partitions.to_vec();
            partitions.sort_unstable();
            (topic.topic_id, partitions)
        })
    });
    let heartbeat_ms = u64::try_from(answer.heartbeat_interval_ms).unwrap_or(0).max(1);
    Ok(Answer { epoch: answer.member_epoch, heartbeat_ms, assignment })
}

impl Shared {
    fn epoch_in(&self, term: u64) -> Option<i32> {
        let state = self.state.borrow();
        (state.term == term).then_some(state.epoch)
    }

    fn news(&self, term: u64) -> Result<Option<News>, ClientError> {
        let state = self.state.borrow();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if state.term != term {
            return Ok(Some(News::Lost { term: state.term }));
        }
        let target = state.target.clone().filter(|target| *target != state.owned);
        Ok(target.map(News::Partitions))
    }

    fn own(&self, term: u64, partitions: Vec<i32>) {
        let mut state = self.state.borrow_mut();
        if state.term == term {
            state.owned = partitions;
        }
        drop(state);
        self.told.notify_all();
    }

    fn take_in(&self, answer: Answer) {
        let mut state = self.state.borrow_mut();
        state.epoch = answer.epoch;
        if let Some((topic_id, partitions)) = answer.assignment {
            if !partitions.is_empty() {
                state.topic_id = topic_id;
            }
            state.target = Some(partitions);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// The group went on without this member: it has nothing and joins anew.
    fn lose(&self) {
        let mut state = self.state.borrow_mut();
        state.epoch = JOIN;
        state.term += 1;
        state.owned = Vec::new();
        state.target = None;
        drop(state);
        self.changed.notify_all();
    }

    fn fail(&self, error: ClientError) {
        self.state.borrow_mut().failed = Some(error);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: Uuid = Uuid([1; 16]);

    fn shared() -> Shared {
        Shared {
            group: "g".into(),
            topic: "t".into(),
            member: "m".into(),
            state: RefCell::new(State::begin()),
            changed: Notify::new(),
            told: Notify::new(),
        }
    }

    fn answer(epoch: i32, partitions: &[i32]) -> Answer {
        Answer { epoch, heartbeat_ms: 1, assignment: Some((TOPIC, partitions.to_vec())) }
    }

    fn news(shared: &Shared, term: u64) -> Option<News> {
        shared.news(term).ok().flatten()
    }

    #[test]
    fn what_was_had_before_a_loss_is_not_spoken_for_after_it() {
        let shared = shared();
        shared.take_in(answer(5, &[0, 1]));
        assert_eq!(news(&shared, 0), Some(News::Partitions(vec![0, 1])));
        shared.own(0, vec![0, 1]);
        assert_eq!((news(&shared, 0), shared.epoch_in(0)), (None, Some(5)));
        // Lost, and in again before the caller looks.
        shared.lose();
        shared.take_in(answer(9, &[0, 1]));
        assert_eq!(shared.epoch_in(0), None, "offsets of before are not committed in epoch 9");
        assert_eq!(news(&shared, 0), Some(News::Lost { term: 1 }));
        assert_eq!(news(&shared, 1), Some(News::Partitions(vec![0, 1])));
        assert_eq!(shared.epoch_in(1), Some(9));
    }

    #[test]
    fn a_loss_while_partitions_are_taken_over_is_not_missed() {
        let shared = shared();
        shared.take_in(answer(5, &[0]));
        shared.lose();
        shared.own(0, vec![0]);
        let state = shared.state.borrow();
        assert!(state.owned.is_empty(), "a join that owns something would be refused");
        drop(state);
        assert_eq!(news(&shared, 0), Some(News::Lost { term: 1 }));
        assert_eq!(news(&shared, 1), None);
    }
}
