//! A classic group: members, votes, generation, and which state it is in.
//!
//! ```text
//!            first member                 all joined, or time is up
//!   Empty ────────────────► Preparing ──────────────────────► Completing ──┐ leader's assignment
//!     ▲  nobody joined          ▲  ▲                              │         ▼
//!     └─────────────────────────┘  └──────────────────────────────┴────── Stable
//!                                     a member joins, leaves, dies or never syncs
//! ```
//!
//! What survives a restart is one record a generation (`persist.rs`); members that wait for an
//! answer, their deadlines and those that only have an id so far live in memory.

mod heartbeat;
mod join;
mod leave;
mod member;
mod persist;
mod rebalance;
mod static_member;
mod sync;

use std::collections::{BTreeMap, BTreeSet};

use wire::ErrorCode;
use wire::messages as m;
use wire::{Message, Reader};

pub(crate) use join::{MEMBER_ID_REQUIRED_FROM, protocols_of, rebalance_timeout_ms};
pub(crate) use leave::answer as leave_answer;
pub(crate) use member::{Member, Protocols};

use crate::config::Config;
use crate::context::Token;
use crate::error::Refusal;
use crate::offsets::Retention;
use crate::request::{Decision, Reply};
use crate::timers::Timers;
use crate::{CONSUMER_PROTOCOL, Name};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl State {
    /// Kafka's spelling, which tools compare with.
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Preparing => "PreparingRebalance",
            State::Completing => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ClassicGroup {
    pub state: State,
    /// Whether the rebalance under way is the first one since the group was empty.
    from_empty: bool,
    /// When the state began, by the wall clock; not known of groups from old logs.
    pub since_ms: Option<i64>,
    pub generation: i32,
    pub protocol_type: Option<Name>,
    /// The one all members settled on.
    pub protocol: Option<Name>,
    pub leader: Option<Name>,
    pub members: BTreeMap<Name, Member>,
    /// Member ids by instance id.
    pub statics: BTreeMap<Name, Name>,
    /// Topics of the members' subscriptions, if they are consumers and were understood.
    subscribed: Option<BTreeSet<Name>>,
    /// How many members know a protocol.
    votes: BTreeMap<Name, usize>,
    /// Ids that were given out and have not joined yet.
    pending: BTreeSet<Name>,
    /// Members of this generation that have not asked for their assignment yet.
    unsynced: BTreeSet<Name>,
    /// Members with a parked join.
    joined: usize,
    /// Order of arrival for the next member.
    arrivals: u64,
    /// Member ids in that order: who leads next.
    by_arrival: BTreeMap<u64, Name>,
    /// While the initial delay runs: whether someone came, the step's length, and what may be
    /// added.
    initial: Initial,
}

#[derive(Clone, Copy, Debug, Default)]
struct Initial {
    newcomer: bool,
    step_ms: i64,
    left_ms: i64,
}

/// What a step of the machine works with beside the group itself.
pub(crate) struct Step<'a> {
    pub id: Name,
    pub now_ms: i64,
    /// For what is written down.
    pub wall_ms: i64,
    pub config: &'a Config,
    pub timers: &'a mut Timers,
    pub out: &'a mut Decision,
}

impl ClassicGroup {
    pub fn new(since_ms: Option<i64>) -> Self {
        ClassicGroup {
            state: State::Empty,
            from_empty: false,
            since_ms,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            subscribed: None,
            votes: BTreeMap::new(),
            pending: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            joined: 0,
            arrivals: 0,
            by_arrival: BTreeMap::new(),
            initial: Initial::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    pub fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    pub fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL)
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    pub fn retention(&self) -> Retention {
        match (&self.protocol_type, self.state) {
            (None, _) => Retention::FromCommit,
            (Some(_), State::Empty) => Retention::FromEmpty(self.since_ms),
            (Some(_), State::Stable)
                if self.uses_consumer_protocol() && self.subscribed.is_some() =>
            {
                Retention::FromCommit
            }
            (Some(_), _) => Retention::Kept,
        }
    }

    fn turn(&mut self, state: State, wall_ms: i64) {
        self.from_empty = self.state == State::Empty;
        self.state = state;
        self.since_ms = Some(wall_ms);
    }

    /// Adds a member, the first of which leads.
    pub fn add(&mut self, mut member: Member) {
        member.arrival = self.arrivals;
        self.arrivals += 1;
        self.by_arrival.insert(member.arrival, member.id.clone());
        if self.members.is_empty() {
            self.protocol_type = Some(member.protocol_type.clone());
        }
        if let Some(instance) = &member.instance {
            self.statics.insert(instance.clone(), member.id.clone());
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.pending.remove(&member.id);
        self.joined += usize::from(member.join.is_some());
        self.count_votes(&member.protocols, true);
        self.members.insert(member.id.clone(), member);
    }

    /// Takes a member, or an id that never joined, out of the group.
    pub fn remove(&mut self, id: &str) -> Option<Member> {
        let removed = self.members.remove(id);
        if let Some(member) = &removed {
            self.by_arrival.remove(&member.arrival);
            self.count_votes(&member.protocols, false);
            self.joined -= usize::from(member.join.is_some());
            if let Some(instance) = &member.instance {
                self.statics.remove(instance);
            }
        }
        if self.is_leader(id) {
            self.leader = self.by_arrival.values().next().cloned();
        }
        self.pending.remove(id);
        self.unsynced.remove(id);
        removed
    }

    fn count_votes(&mut self, protocols: &Protocols, more: bool) {
        for (name, _) in protocols {
            let votes = self.votes.entry(name.clone()).or_default();
            *votes = if more { *votes + 1 } else { votes.saturating_sub(1) };
            if *votes == 0 {
                self.votes.remove(name);
            }
        }
    }

    /// Whether a member with these protocols could take part.
    pub fn supports(&self, protocol_type: &str, mut names: impl Iterator<Item = Name>) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && names.next().is_some();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && names.any(|name| self.votes.get(&name).copied().unwrap_or(0) == self.members.len())
    }

    /// The protocol that most members prefer among those that all know.
    pub fn elect_protocol(&self) -> Option<Name> {
        let all = self.members.len();
        let mut ballots: BTreeMap<&Name, (usize, u64)> = BTreeMap::new();
        let mut voters: Vec<&Member> = self.members.values().collect();
        voters.sort_by_key(|member| member.arrival);
        for (order, member) in voters.iter().enumerate() {
            let mut known = member.protocols.iter().map(|(name, _)| name);
            let vote = known.find(|name| self.votes.get(*name).copied() == Some(all));
            if let Some(name) = vote {
                let ballot = ballots.entry(name).or_insert((0, order as u64));
                ballot.0 += 1;
            }
        }
        // Of equals, the one that the member who came first wants.
        let best = ballots.into_iter().max_by_key(|(_, (votes, order))| (*votes, u64::MAX - order));
        best.map(|(name, _)| name.clone())
    }

    /// Whether a request of this member, or of a static member's instance, is from the one we know.
    pub fn check_member(&self, member: &str, instance: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            match self.statics.get(instance) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(known) if **known != *member => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        match self.members.contains_key(member) {
            true => Ok(()),
            false => Err(ErrorCode::UnknownMemberId),
        }
    }

    pub fn may_commit(&self, committer: &crate::offsets::Committer<'_>) -> Result<(), Refusal> {
        if committer.epoch < 0 && self.is_empty() {
            return Ok(());
        }
        let named =
            committer.epoch >= 0 || !committer.member.is_empty() || committer.instance.is_some();
        if named {
            self.check_member(committer.member, committer.instance)?;
            if committer.epoch != self.generation {
                return Err(ErrorCode::IllegalGeneration.into());
            }
        } else if !committer.transactional {
            return Err(ErrorCode::UnknownMemberId.into());
        }
        if !committer.transactional && self.state == State::Completing {
            return Err(ErrorCode::RebalanceInProgress.into());
        }
        Ok(())
    }

    /// The member whose session a commit prolongs, and until when.
    pub fn session_after_commit(&self, member: &str, now_ms: i64) -> Option<(Name, i64)> {
        if !matches!(self.state, State::Stable | State::Preparing) {
            return None;
        }
        let member = self.members.get(member)?;
        Some((member.id.clone(), now_ms + i64::from(member.session_timeout_ms)))
    }

    pub fn may_delete_offsets(&self) -> Result<(), Refusal> {
        match self.is_empty() || self.uses_consumer_protocol() {
            true => Ok(()),
            false => Err(ErrorCode::NonEmptyGroup.into()),
        }
    }

    fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|m| i64::from(m.rebalance_timeout_ms)).max().unwrap_or(0)
    }

    fn all_joined(&self) -> bool {
        self.members.len() == self.joined && self.pending.is_empty()
    }

    /// Parks a join; one that was parked before gets an answer, as its client has moved on.
    fn park_join(&mut self, member: &str, token: Token, out: &mut Decision) {
        self.answer_join(member, ErrorCode::RebalanceInProgress, out);
        if let Some(member) = self.members.get_mut(member) {
            member.join = Some(token);
            self.joined += 1;
        }
    }

    fn take_join(&mut self, member: &str) -> Option<(Token, i16)> {
        let member = self.members.get_mut(member)?;
        let token = member.join.take()?;
        self.joined -= 1;
        Some((token, member.version))
    }

    /// Ends a parked join with an error.
    fn answer_join(&mut self, member: &str, code: ErrorCode, out: &mut Decision) {
        if let Some((token, version)) = self.take_join(member) {
            let name = if code == ErrorCode::UnknownMemberId { "" } else { member };
            out.reply(token, join_error(name, code, version));
        }
    }

    fn answer_sync(&mut self, member: &str, code: ErrorCode, out: &mut Decision) {
        let token = self.members.get_mut(member).and_then(|member| member.sync.take());
        if let Some(token) = token {
            out.reply(token, sync_error(code));
        }
    }

    /// Ends everything that waits, before the group stops being a classic one.
    pub fn answer_all(&mut self, code: ErrorCode, out: &mut Decision) {
        let ids: Vec<Name> = self.members.keys().cloned().collect();
        for id in ids {
            self.answer_join(&id, code, out);
            self.answer_sync(&id, code, out);
        }
    }

    /// Learns anew what the members subscribe to.
    pub fn read_topics(&mut self) {
        self.subscribed = self.read_subscriptions();
    }

    /// Reads the members' subscriptions; none if one of them makes no sense.
    fn read_subscriptions(&self) -> Option<BTreeSet<Name>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let metadata = member.metadata(self.protocol.as_deref()?);
            let mut reader = Reader::new(metadata);
            // Any version begins with the topics, and that is all we want.
            reader.i16().ok()?;
            let subscription = m::ConsumerProtocolSubscription::decode(&mut reader, 0).ok()?;
            topics.extend(subscription.topics.iter().map(|topic| Name::from(&*topic)));
        }
        Some(topics)
    }
}

/// The answer to a join that fails.
pub(crate) fn join_error(member: &str, code: ErrorCode, version: i16) -> Reply {
    Reply::JoinGroup(m::JoinGroupResponse {
        error_code: code.code(),
        generation_id: -1,
        member_id: String::from(member).into(),
        protocol_name: absent_protocol(version),
        ..Default::default()
    })
}

/// Versions before 7 cannot say that there is no protocol.
pub(crate) fn absent_protocol(version: i16) -> Option<wire::Text<'static>> {
    (version < 7).then(|| "".into())
}

pub(crate) fn sync_error(code: ErrorCode) -> Reply {
    Reply::SyncGroup(m::SyncGroupResponse { error_code: code.code(), ..Default::default() })
}
