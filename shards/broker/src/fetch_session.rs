//! Incremental fetch sessions (KIP-227): what each fetching client last asked for and was last told.
//!
//! One cache a shard, never shared. Pure: time and random ids are arguments, nothing here awaits.
//! A session remembers the partitions of a fetcher in fetch order, so that later requests name
//! only what changed and later answers carry only what moved.
//!
//! Request (session id, epoch) and what it means:
//!
//! | id | epoch | meaning |
//! |----|-------|---------|
//! | 0  | 0     | full fetch, create a session |
//! | any| -1    | full fetch without a session; an existing one is closed |
//! | n  | 0     | full fetch, close session n and create a new one |
//! | n  | e > 0 | incremental fetch, e must be the epoch that follows the last one |

use std::collections::BTreeMap;
use std::rc::Rc;

use ahash::AHashMap;
use wire::{ErrorCode, Uuid};

/// A session that was not used for this long may be evicted by a new one (Kafka's own constant).
const EVICT_AFTER_MS: i64 = 120_000;
/// What one partition of a session takes in memory beside the topic's name, measured.
const PARTITION_BYTES: usize = 160;
const EPOCH_INITIAL: i32 = 0;
const EPOCH_FINAL: i32 = -1;

/// A topic as the client named it: by name below Fetch version 13, by id from then on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicRef {
    Name(Rc<str>),
    Id(Uuid),
}

impl TopicRef {
    /// What a session that remembers a partition of this topic is charged.
    fn charge(&self) -> usize {
        match self {
            TopicRef::Name(name) => PARTITION_BYTES + name.len(),
            TopicRef::Id(_) => PARTITION_BYTES,
        }
    }
}

/// What a client wants from one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub topic: TopicRef,
    pub partition: i32,
    pub current_leader_epoch: i32,
    pub fetch_offset: i64,
    pub last_fetched_epoch: i32,
    pub max_bytes: i32,
}

/// What the answer says of one partition, as far as sessions care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub high_watermark: i64,
    pub log_start_offset: i64,
    pub has_data: bool,
    /// An error or a diverging epoch: always worth telling, and to be told again next time.
    pub must_answer: bool,
}

/// How the request at hand is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// No session: everything is answered, session id 0.
    Sessionless,
    /// The first answer of this session: everything is answered.
    Full(i32),
    /// Only what changed is answered.
    Incremental(i32),
}

impl Context {
    /// The session id that the answer carries.
    pub fn session_id(self) -> i32 {
        match self {
            Context::Sessionless => 0,
            Context::Full(id) | Context::Incremental(id) => id,
        }
    }
}

struct Cached {
    wanted: Wanted,
    high_watermark: i64,
    log_start_offset: i64,
}

struct Session {
    epoch_next: i32,
    uses_topic_ids: bool,
    created_ms: i64,
    used_ms: i64,
    /// Fetch order; a partition that returned data moves to the end, so that none starves.
    order: BTreeMap<u64, Cached>,
    positions: AHashMap<(TopicRef, i32), u64>,
    position_next: u64,
    bytes: usize,
}

impl Session {
    fn new(uses_topic_ids: bool, now_ms: i64) -> Self {
        Session {
            epoch_next: 1,
            uses_topic_ids,
            created_ms: now_ms,
            used_ms: now_ms,
            order: BTreeMap::new(),
            positions: AHashMap::new(),
            position_next: 0,
            bytes: 0,
        }
    }

    fn upsert(&mut self, wanted: Wanted) {
        let key = (wanted.topic.clone(), wanted.partition);
        if let Some(cached) = self.positions.get(&key).and_then(|p| self.order.get_mut(p)) {
            cached.wanted = wanted;
            return;
        }
        let position = self.position_next;
        self.position_next += 1;
        self.bytes += key.0.charge();
        self.positions.insert(key, position);
        self.order.insert(position, Cached { wanted, high_watermark: -1, log_start_offset: -1 });
    }

    fn forget(&mut self, topic: &TopicRef, partition: i32) {
        if let Some(position) = self.positions.remove(&(topic.clone(), partition)) {
            self.order.remove(&position);
            self.bytes -= topic.charge();
        }
    }

    /// Records what the answer tells of a partition and says whether an incremental answer
    /// has to mention it.
    fn tell(&mut self, topic: &TopicRef, partition: i32, told: Told) -> bool {
        let key = (topic.clone(), partition);
        let Some(position) = self.positions.get_mut(&key) else { return true };
        let Some(cached) = self.order.get_mut(position) else { return true };
        let moved = cached.high_watermark != told.high_watermark
            || cached.log_start_offset != told.log_start_offset;
        cached.high_watermark = if told.must_answer { -1 } else { told.high_watermark };
        cached.log_start_offset = told.log_start_offset;
        if told.has_data
            && let Some(cached) = self.order.remove(position)
        {
            *position = self.position_next;
            self.order.insert(self.position_next, cached);
            self.position_next += 1;
        }
        moved || told.has_data || told.must_answer
    }
}

/// The sessions of one shard, at most `slots` of them and about `bytes_max` bytes. A client that
/// finds no room is served without a session.
pub struct FetchSessions {
    slots: usize,
    bytes_max: usize,
    bytes: usize,
    sessions: AHashMap<i32, Session>,
}

impl FetchSessions {
    pub fn new(slots: usize, bytes_max: usize) -> Self {
        FetchSessions { slots, bytes_max, bytes: 0, sessions: AHashMap::new() }
    }

    fn remove(&mut self, id: i32) -> bool {
        let Some(session) = self.sessions.remove(&id) else { return false };
        self.bytes -= session.bytes;
        true
    }

    /// Starts serving a request: checks its session id and epoch, takes over what it changes and
    /// returns the partitions to fetch, in order.
    ///
    /// # Errors
    /// `FETCH_SESSION_ID_NOT_FOUND` (70), `INVALID_FETCH_SESSION_EPOCH` (71) and, for a session
    /// that changes between topic names and topic ids, `FETCH_SESSION_TOPIC_ID_ERROR` (106).
    pub fn begin(
        &mut self,
        request: Request<'_>,
        wanted: Vec<Wanted>,
        forgotten: Vec<(TopicRef, i32)>,
    ) -> Result<(Context, Vec<Wanted>), ErrorCode> {
        if request.epoch == EPOCH_INITIAL || request.epoch == EPOCH_FINAL {
            self.remove(request.session_id);
            if request.epoch == EPOCH_FINAL {
                return Ok((Context::Sessionless, wanted));
            }
            return Ok(self.create(request, wanted));
        }
        let session =
            self.sessions.get_mut(&request.session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch_next != request.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.uses_topic_ids != request.uses_topic_ids {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        session.used_ms = request.now_ms;
        session.epoch_next = if request.epoch == i32::MAX { 1 } else { request.epoch + 1 };
        let before = session.bytes;
        for partition in wanted {
            session.upsert(partition);
        }
        for (topic, partition) in &forgotten {
            session.forget(topic, *partition);
        }
        self.bytes = self.bytes - before + session.bytes;
        if session.order.is_empty() {
            self.remove(request.session_id);
            return Ok((Context::Sessionless, Vec::new()));
        }
        if session.bytes > before && self.bytes > self.bytes_max {
            // It has outgrown the cache. The client starts over, with all of its partitions.
            self.remove(request.session_id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        let fetch = session.order.values().map(|cached| cached.wanted.clone()).collect();
        Ok((Context::Incremental(request.session_id), fetch))
    }

    fn create(&mut self, request: Request<'_>, wanted: Vec<Wanted>) -> (Context, Vec<Wanted>) {
        let bytes: usize = wanted.iter().map(|partition| partition.topic.charge()).sum();
        if wanted.is_empty() || bytes > self.bytes_max {
            return (Context::Sessionless, wanted);
        }
        while self.sessions.len() >= self.slots || self.bytes + bytes > self.bytes_max {
            if !self.evict(wanted.len(), request.now_ms) {
                return (Context::Sessionless, wanted);
            }
        }
        let id = loop {
            let id = ((request.random)() & 0x7fff_ffff) as i32;
            if id != 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session::new(request.uses_topic_ids, request.now_ms);
        for partition in &wanted {
            session.upsert(partition.clone());
        }
        self.bytes += session.bytes;
        self.sessions.insert(id, session);
        (Context::Full(id), wanted)
    }

    /// A full cache gives way to a new session only where one is stale, or old and smaller.
    fn evict(&mut self, partitions: usize, now_ms: i64) -> bool {
        let stale = self
            .sessions
            .iter()
            .min_by_key(|(_, session)| session.used_ms)
            .filter(|(_, session)| now_ms - session.used_ms > EVICT_AFTER_MS);
        let victim = stale.or_else(|| {
            self.sessions
                .iter()
                .min_by_key(|(_, session)| session.order.len())
                .filter(|(_, session)| session.order.len() < partitions)
                .filter(|(_, session)| now_ms - session.created_ms > EVICT_AFTER_MS)
        });
        match victim.map(|(id, _)| *id) {
            Some(id) => self.remove(id),
            None => false,
        }
    }

    /// Notes what the answer says of one partition; returns whether the answer must carry it.
    pub fn tell(&mut self, context: Context, topic: &TopicRef, partition: i32, told: Told) -> bool {
        let (Context::Full(id) | Context::Incremental(id)) = context else { return true };
        let Some(session) = self.sessions.get_mut(&id) else { return true };
        let changed = session.tell(topic, partition, told);
        changed || matches!(context, Context::Full(_))
    }
}

/// The session part of a fetch request, with the clock and the source of new ids.
pub struct Request<'a> {
    pub session_id: i32,
    pub epoch: i32,
    pub uses_topic_ids: bool,
    pub now_ms: i64,
    pub random: &'a mut dyn FnMut() -> u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: usize = 1 << 30;

    fn wanted(partition: i32) -> Wanted {
        Wanted {
            topic: TopicRef::Name("t".into()),
            partition,
            current_leader_epoch: -1,
            fetch_offset: 0,
            last_fetched_epoch: -1,
            max_bytes: 1024,
        }
    }

    fn begin(
        sessions: &mut FetchSessions,
        (session_id, epoch): (i32, i32),
        now_ms: i64,
        partitions: &[i32],
    ) -> Result<(Context, Vec<i32>), ErrorCode> {
        let mut seed = 41u64 + now_ms as u64 + sessions.sessions.len() as u64;
        let mut random = || {
            seed += 1;
            seed
        };
        let request =
            Request { session_id, epoch, uses_topic_ids: false, now_ms, random: &mut random };
        let asked = partitions.iter().map(|p| wanted(*p)).collect();
        let (context, fetch) = sessions.begin(request, asked, Vec::new())?;
        Ok((context, fetch.iter().map(|w| w.partition).collect()))
    }

    fn told(high_watermark: i64, has_data: bool) -> Told {
        Told { high_watermark, log_start_offset: 0, has_data, must_answer: false }
    }

    #[test]
    fn an_incremental_fetch_keeps_the_partitions_and_answers_only_changes() {
        let mut sessions = FetchSessions::new(10, PLENTY);
        let (full, _) = begin(&mut sessions, (0, 0), 0, &[0, 1, 2]).unwrap();
        let topic = TopicRef::Name("t".into());
        assert!(matches!(full, Context::Full(_)));
        for p in 0..3 {
            assert!(sessions.tell(full, &topic, p, told(5, false)), "the first answer is full");
        }
        let (next, fetch) = begin(&mut sessions, (full.session_id(), 1), 1, &[]).unwrap();
        assert_eq!(fetch, [0, 1, 2]);
        assert!(!sessions.tell(next, &topic, 0, told(5, false)), "nothing changed");
        assert!(sessions.tell(next, &topic, 1, told(6, false)), "the high watermark moved");
        assert!(sessions.tell(next, &topic, 0, told(7, true)), "data is always told");
        let (_, fetch) = begin(&mut sessions, (full.session_id(), 2), 2, &[]).unwrap();
        assert_eq!(fetch, [1, 2, 0], "a partition that returned data goes to the end");
    }

    #[test]
    fn an_error_is_told_again_until_it_is_over() {
        let mut sessions = FetchSessions::new(10, PLENTY);
        let (context, _) = begin(&mut sessions, (0, 0), 0, &[0]).unwrap();
        let topic = TopicRef::Name("t".into());
        let failed = Told { must_answer: true, ..told(-1, false) };
        assert!(sessions.tell(context, &topic, 0, failed));
        let (next, _) = begin(&mut sessions, (context.session_id(), 1), 1, &[]).unwrap();
        assert!(sessions.tell(next, &topic, 0, told(0, false)), "the end of an error is a change");
    }

    #[test]
    fn wrong_ids_and_epochs_are_refused() {
        let mut sessions = FetchSessions::new(10, PLENTY);
        assert_eq!(begin(&mut sessions, (9, 1), 0, &[0]), Err(ErrorCode::FetchSessionIdNotFound));
        let (context, _) = begin(&mut sessions, (0, 0), 0, &[0]).unwrap();
        let id = context.session_id();
        assert_eq!(begin(&mut sessions, (id, 2), 0, &[]), Err(ErrorCode::InvalidFetchSessionEpoch));
        let mut random = || 7;
        let by_id = Request {
            session_id: id,
            epoch: 1,
            uses_topic_ids: true,
            now_ms: 0,
            random: &mut random,
        };
        assert_eq!(
            sessions.begin(by_id, Vec::new(), Vec::new()).unwrap_err(),
            ErrorCode::FetchSessionTopicIdError
        );
    }

    #[test]
    fn the_epoch_wraps_to_one() {
        let mut sessions = FetchSessions::new(10, PLENTY);
        let (context, _) = begin(&mut sessions, (0, 0), 0, &[0]).unwrap();
        let id = context.session_id();
        sessions.sessions.get_mut(&id).unwrap().epoch_next = i32::MAX;
        assert!(begin(&mut sessions, (id, i32::MAX), 0, &[]).is_ok());
        assert!(begin(&mut sessions, (id, 1), 0, &[]).is_ok());
    }

    #[test]
    fn a_full_cache_serves_without_a_session_until_one_is_stale() {
        let mut sessions = FetchSessions::new(1, PLENTY);
        begin(&mut sessions, (0, 0), 0, &[0]).unwrap();
        let (context, fetch) = begin(&mut sessions, (0, 0), 1, &[3]).unwrap();
        assert_eq!((context, fetch), (Context::Sessionless, vec![3]));
        let later = EVICT_AFTER_MS + 1;
        let (context, _) = begin(&mut sessions, (0, 0), later, &[3]).unwrap();
        assert!(matches!(context, Context::Full(_)));
        assert_eq!(sessions.sessions.len(), 1);
    }

    #[test]
    fn forgetting_every_partition_ends_the_session() {
        let mut sessions = FetchSessions::new(10, PLENTY);
        let (context, _) = begin(&mut sessions, (0, 0), 0, &[0, 1]).unwrap();
        let mut random = || 7;
        let request = Request {
            session_id: context.session_id(),
            epoch: 1,
            uses_topic_ids: false,
            now_ms: 0,
            random: &mut random,
        };
        let topic = TopicRef::Name("t".into());
        let gone = vec![(topic.clone(), 0), (topic, 1)];
        let (context, fetch) = sessions.begin(request, Vec::new(), gone).unwrap();
        assert_eq!((context, fetch.len()), (Context::Sessionless, 0));
        assert!(sessions.sessions.is_empty());
    }

    #[test]
    fn sessions_stay_within_their_memory() {
        let partition = PARTITION_BYTES + "t".len();
        let mut sessions = FetchSessions::new(10, 3 * partition);
        let (two, _) = begin(&mut sessions, (0, 0), 0, &[0, 1]).unwrap();
        assert!(matches!(two, Context::Full(_)));
        let (context, fetch) = begin(&mut sessions, (0, 0), 1, &[0, 1]).unwrap();
        assert_eq!((context, fetch), (Context::Sessionless, vec![0, 1]), "served all the same");
        let (context, _) = begin(&mut sessions, (0, 0), 2, &[0]).unwrap();
        assert!(matches!(context, Context::Full(_)), "one partition still fits");
        assert_eq!(sessions.bytes, 3 * partition);
        let grown = begin(&mut sessions, (two.session_id(), 1), 3, &[2]);
        assert_eq!(grown, Err(ErrorCode::FetchSessionIdNotFound), "the client starts over");
        assert_eq!(sessions.bytes, partition);
        let (_, fetch) = begin(&mut sessions, (context.session_id(), 1), 4, &[0]).unwrap();
        assert_eq!(fetch, [0], "a full cache does not end what does not grow");
        begin(&mut sessions, (context.session_id(), EPOCH_FINAL), 5, &[0]).unwrap();
        assert_eq!(sessions.bytes, 0);
    }
}
