//! Accepts connections on the shard's own port, within the connection limits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;
use reactor::{Instant, TcpListener};
use tracing::{debug, warn};

use crate::connection::{self, ConnectionState};
use crate::metrics::Samples;
use crate::settings;
use crate::shard::Shard;

/// How often idle connections are looked for.
const IDLE_SWEEP: Duration = Duration::from_secs(5);
/// Replies that a client has not taken after this time are dropped with the connection: they keep
/// record bytes in memory.
const UNREAD: Duration = Duration::from_secs(300);
/// The same while others wait for the memory that unsent replies hold, or it is more than there is.
const UNREAD_HOLDING_UP: Duration = Duration::from_secs(10);
/// While a request waits for memory, a connection that sends nothing more of the request it has
/// begun, or too little, is closed after this time.
const STALLED: Duration = Duration::from_secs(10);
/// After an accept that failed (no descriptors left, say) the listener takes a breath.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The shard's open connections.
#[derive(Default)]
pub(crate) struct Connections {
    next_id: Cell<u64>,
    open: RefCell<BTreeMap<u64, Rc<ConnectionState>>>,
    per_ip: RefCell<AHashMap<IpAddr, usize>>,
    refused: Cell<u64>,
}

impl Connections {
    fn insert(&self, state: Rc<ConnectionState>) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        *self.per_ip.borrow_mut().entry(state.peer.ip()).or_default() += 1;
        self.open.borrow_mut().insert(id, state);
        id
    }

    fn remove(&self, id: u64) {
        let Some(state) = self.open.borrow_mut().remove(&id) else { return };
        let mut per_ip = self.per_ip.borrow_mut();
        if let Some(count) = per_ip.get_mut(&state.peer.ip()) {
            *count -= 1;
            if *count == 0 {
                per_ip.remove(&state.peer.ip());
            }
        }
    }

    pub fn len(&self) -> usize {
        self.open.borrow().len()
    }

    fn count_of(&self, ip: IpAddr) -> usize {
        self.per_ip.borrow().get(&ip).copied().unwrap_or(0)
    }

    /// Connections accepted since the start.
    fn accepted(&self) -> u64 {
        self.next_id.get()
    }

    pub fn close_all(&self) {
        for state in self.open.borrow().values() {
            state.stream.shutdown();
        }
    }
}

/// Accepts until the task is dropped.
pub(crate) async fn accept(shard: Rc<Shard>, listener: TcpListener) {
    reactor::spawn(close_idle(shard.clone())).detach();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!("accept failed: {error}; trying again");
                reactor::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let config = shard.config();
        let connections = &shard.connections;
        if connections.len() >= config.max_connections as usize
            || connections.count_of(peer.ip()) >= config.max_connections_per_ip as usize
        {
            debug!(%peer, "refusing connection: max.connections or max.connections.per.ip");
            stream.shutdown();
            connections.refused.set(connections.refused.get() + 1);
            continue;
        }
        let state = Rc::new(ConnectionState {
            stream,
            peer,
            last_active: Cell::new(reactor::now()),
            outstanding: Cell::new(0),
            receiving: Cell::new(None),
            sending: Cell::new(None),
            unsent_bytes: Cell::new(0),
        });
        let id = connections.insert(state.clone());
        let owner = shard.clone();
        reactor::spawn(async move {
            connection::serve(owner.clone(), state).await;
            owner.connections.remove(id);
        })
        .detach();
    }
}

/// Closes connections on which nothing happened for `connections.max.idle.ms`, and those that hold
/// up others with half a request.
async fn close_idle(shard: Rc<Shard>) {
    loop {
        reactor::sleep(IDLE_SWEEP).await;
        if shard.is_stopping() {
            return;
        }
        let limit = settings::interval(shard.config().connections_max_idle_ms);
        let is_scarce = shard.request_budget.is_scarce();
        let unread_limit = match shard.log_shared.is_held_up() {
            true => UNREAD_HOLDING_UP,
            false => UNREAD,
        };
        let now = reactor::now();
        for state in shard.connections.open.borrow().values() {
            let idle = now - state.last_active.get();
            if state.outstanding.get() == 0 && limit.is_some_and(|limit| idle >= limit) {
                debug!(peer = %state.peer, "closing connection: idle for {idle:?}");
                state.stream.shutdown();
            }
            let unread = state.sending.get().map(|since| now - since);
            if unread.is_some_and(|unread| unread >= unread_limit) {
                close_unread(&shard, state);
            }
            let receiving = state.receiving.get();
            if is_scarce && receiving.is_some_and(|frame| frame.is_stalled(now, STALLED)) {
                warn!(peer = %state.peer, "closing connection: it holds memory with half a request");
                state.stream.shutdown();
            }
        }
        free_answers(&shard, now);
    }
}

/// Where answers that are not taken keep others from being made, or are more than the shard has memory
/// for, the longest of them go, and of those the oldest.
fn free_answers(shard: &Shard, now: Instant) {
    let mut to_free = shard.answers.to_free();
    if to_free == 0 {
        return;
    }
    let open = shard.connections.open.borrow();
    let since = |state: &ConnectionState| {
        state.sending.get().filter(|since| now - *since >= UNREAD_HOLDING_UP)
    };
    let mut unread: Vec<_> =
        open.values().filter_map(|state| Some((since(state)?, state))).collect();
    unread.sort_by_key(|(since, state)| (std::cmp::Reverse(state.unsent_bytes.get()), *since));
    for (_, state) in unread {
        let bytes = state.unsent_bytes.get();
        if to_free == 0 || bytes == 0 {
            return;
        }
        to_free = to_free.saturating_sub(bytes);
        close_unread(shard, state);
    }
}

fn close_unread(shard: &Shard, state: &ConnectionState) {
    let bytes = state.unsent_bytes.get();
    warn!(peer = %state.peer, bytes, "closing connection: it does not read its replies");
    // Once is enough, however long its tasks take to end.
    state.unsent_bytes.set(0);
    state.sending.set(None);
    state.stream.shutdown();
    shard.answers.note_closed();
}

pub(crate) fn samples(shard: &Shard, out: &mut Samples) {
    let connections = &shard.connections;
    let number = shard.id().to_string();
    let label = [("shard", number.as_str())];
    out.gauge("corelane_connections", "Open connections.", &label, connections.len() as f64);
    let help = "Connections accepted.";
    out.counter("corelane_connections_total", help, &label, connections.accepted() as f64);
    let help = "Connections refused by max.connections or max.connections.per.ip.";
    let refused = connections.refused.get() as f64;
    out.counter("corelane_connections_refused_total", help, &label, refused);
    let help = "Connections closed because their client did not take its replies.";
    let unread = shard.answers.closed() as f64;
    out.counter("corelane_connections_unread_closed_total", help, &label, unread);
}
