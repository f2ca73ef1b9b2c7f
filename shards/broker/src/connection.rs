//! One client connection: requests in, replies out in request order, both bounded.
//!
//! Two tasks on the shard's core share it. The reader cuts frames and takes each request in: a
//! produce is appended at once (its acknowledgement waits), anything else starts when its turn to
//! answer has come. The writer finishes replies in order and sends what is ready in one vectored
//! write. A client that does not read its replies stops being read itself.

use std::cell::Cell;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use reactor::sync::{Receiver, Sender, channel};
use reactor::{Class, Instant, TcpStream, with_class, yield_now};
use tracing::{debug, error, info, warn};
use wire::ApiKey;

use crate::answers::Held;
use crate::api::{self, SharedPermit};
use crate::frame_reader::{FrameError, FrameReader, Grant, Receiving, SIZE_BYTES};
use crate::reply::{Close, Handled, Pending, Reply};
use crate::shard::Shard;

/// Requests of one connection that may wait for their reply; then its socket is not read.
const PENDING_REPLIES_MAX: usize = 64;
/// Ready replies are sent together up to about this many bytes or pieces.
const SEND_BYTES_MAX: usize = 1024 * 1024;
const SEND_PIECES_MAX: usize = 256;

/// Lookups of thousands of partitions, asked for over many connections, take a core for seconds. Records
/// must not wait behind them.
const LOOKUPS: Class = Class::Replication;

/// What the shard knows of an open connection (for idle closing and shutdown).
pub(crate) struct ConnectionState {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    pub last_active: Cell<Instant>,
    pub outstanding: Cell<usize>,
    /// The request of which the rest is awaited.
    pub receiving: Cell<Option<Receiving>>,
    /// Since when replies have been on their way to a client that does not take them.
    pub sending: Cell<Option<Instant>>,
    /// Encoded bytes of these replies.
    pub unsent_bytes: Cell<usize>,
}

/// A request taken in, with the memory that it or what became of it holds until its reply has left.
struct Queued {
    pending: Pending,
    /// None where that is next to nothing.
    grant: Option<Grant>,
    /// In its place for a request that may give its memory back before it is answered.
    shared: Option<SharedPermit>,
    api: ApiKey,
    /// Its reply is made when there is room for a long one.
    is_answered_at_length: bool,
    /// It makes way for records, see [`LOOKUPS`].
    is_lookup: bool,
}

/// Serves one client until it leaves, misbehaves or the shard stops.
pub(crate) async fn serve(shard: Rc<Shard>, state: Rc<ConnectionState>) {
    let (sender, receiver) = channel(PENDING_REPLIES_MAX);
    let writer = reactor::spawn(write_replies(shard.clone(), state.clone(), receiver));
    let ended = read_requests(&shard, &state, &sender).await;
    drop(sender);
    let peer = state.peer;
    if matches!(ended, Err(ReadEnd::Close(ref close)) if !matches!(close, Close::Stopping)) {
        shard.metrics.traffic.note_closing();
    }
    match ended {
        // The client left: whatever still waits (a long poll, say) has no reader any more.
        Ok(()) | Err(ReadEnd::Frame(FrameError::Io(_) | FrameError::Truncated)) => drop(writer),
        Err(ReadEnd::Frame(error @ FrameError::LooksLikeTls)) => {
            info!(%peer, "closing connection: {error}");
        }
        Err(ReadEnd::Frame(error)) => warn!(%peer, "closing connection: {error}"),
        Err(ReadEnd::Close(reason)) => {
            debug!(%peer, "closing connection: {reason}");
            // Replies to what came before are still owed.
            writer.await;
        }
    }
    state.stream.shutdown();
}

enum ReadEnd {
    Frame(FrameError),
    Close(Close),
}

async fn read_requests(
    shard: &Rc<Shard>,
    state: &Rc<ConnectionState>,
    sender: &Sender<Queued>,
) -> Result<(), ReadEnd> {
    let limit = shard.config().socket_request_max_bytes;
    let mut frames = FrameReader::new(state.clone(), limit, shard.request_budget.clone());
    while let Some(frame) = frames.next().await.map_err(ReadEnd::Frame)? {
        if shard.is_stopping() {
            return Err(ReadEnd::Close(Close::Stopping));
        }
        state.last_active.set(reactor::now());
        state.outstanding.set(state.outstanding.get() + 1);
        let size = frame.bytes.len();
        shard.metrics.traffic.note_received(SIZE_BYTES + size);
        let request = api::Request::parse(shard.clone(), frame.bytes, state.peer);
        let mut request = request.map_err(ReadEnd::Close)?;
        let (mut grant, mut shared) = (Some(frame.grant), None);
        if request.may_wait_long() {
            let memory = Rc::new(Cell::new(grant.take()));
            request.share_memory(memory.clone());
            shared = Some(memory);
        }
        let (api, is_answered_at_length) = (request.api, request.is_answered_at_length());
        let is_lookup = request.is_lookup();
        let pending = api::take(request).await.map_err(ReadEnd::Close)?;
        if let Pending::Produce(produce) = &pending
            && let Some(of_frame) = grant.take()
        {
            grant = frames.let_go(of_frame, size, produce.held_bytes()).await;
        }
        let queued = Queued { pending, grant, shared, api, is_answered_at_length, is_lookup };
        if sender.send(queued).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn write_replies(
    shard: Rc<Shard>,
    state: Rc<ConnectionState>,
    mut receiver: Receiver<Queued>,
) {
    let mut out =
        Outbox { shard, state, pieces: Vec::new(), grants: Vec::new(), held: Vec::new(), bytes: 0 };
    while let Some(queued) = receiver.recv().await {
        if out.answer(queued).await.is_err() {
            break;
        }
        while !out.is_full() {
            let Some(queued) = receiver.try_recv() else { break };
            if out.answer(queued).await.is_err() {
                out.state.stream.shutdown();
                return;
            }
        }
        if out.flush().await.is_err() {
            break;
        }
    }
    // Wakes the reader, whose client is gone or has to go.
    out.state.stream.shutdown();
}

/// Replies that are ready to leave together.
struct Outbox {
    shard: Rc<Shard>,
    state: Rc<ConnectionState>,
    pieces: Vec<Bytes>,
    grants: Vec<Option<Grant>>,
    held: Vec<Held>,
    bytes: usize,
}

/// The connection is over; the reason has been logged.
struct Over;

impl Outbox {
    fn is_full(&self) -> bool {
        self.bytes >= SEND_BYTES_MAX || self.pieces.len() >= SEND_PIECES_MAX
    }

    /// Finishes one request; what is ready before it does not wait for it.
    async fn answer(&mut self, queued: Queued) -> Result<(), Over> {
        let (api, answers) = (queued.api, self.shard.answers.clone());
        let finish = async {
            let held = match queued.is_answered_at_length {
                true => answers.long(api).await,
                false => answers.short(),
            };
            (held, queued.pending.finish().await)
        };
        let mut finish = pin!(finish);
        let at_once = match queued.is_lookup {
            true => None,
            false => poll_once(finish.as_mut()).await,
        };
        let (mut held, handled): (Held, Handled) = match at_once {
            Some(handled) => handled,
            None => {
                self.flush().await?;
                match queued.is_lookup {
                    true => with_class(LOOKUPS, after_others(finish)).await,
                    false => finish.await,
                }
            }
        };
        self.state.last_active.set(reactor::now());
        self.grants.push(queued.grant.or_else(|| queued.shared?.take()));
        match handled {
            Ok(Reply::Nothing) => self.state.outstanding.set(self.state.outstanding.get() - 1),
            Ok(Reply::Send { pieces, encoded }) => {
                held.settle(api, encoded);
                self.held.push(held);
                self.bytes += pieces.iter().map(Bytes::len).sum::<usize>();
                self.pieces.extend(pieces);
                self.state.outstanding.set(self.state.outstanding.get() - 1);
            }
            Err(close) => {
                self.shard.metrics.traffic.note_closing();
                match close {
                    // Ours: every response has to fit every version that is advertised.
                    Close::Unencodable(_) => {
                        error!(peer = %self.state.peer, "closing connection: {close}");
                    }
                    _ => debug!(peer = %self.state.peer, "closing connection: {close}"),
                }
                // What was answered before is still sent; the failure of that changes nothing.
                let _ = self.flush().await;
                return Err(Over);
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Over> {
        if !self.pieces.is_empty() {
            let pieces = std::mem::take(&mut self.pieces);
            self.state.sending.set(Some(self.state.last_active.get()));
            self.state.unsent_bytes.set(self.held.iter().map(Held::bytes).sum());
            let sent = self.state.stream.write_all(pieces).await;
            self.state.sending.set(None);
            self.state.unsent_bytes.set(0);
            if let Err(error) = sent {
                debug!(peer = %self.state.peer, "client left before its replies: {error}");
                return Err(Over);
            }
            self.shard.metrics.traffic.note_sent(self.bytes);
        }
        self.grants.clear();
        self.held.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// In its turn among others of the class.
async fn after_others<F: Future>(future: F) -> F::Output {
    // A task that wakes itself while it is polled does so in the class that it had before.
    yield_now().await;
    yield_now().await;
    future.await
}

/// Polls a future a single time; `None` if it is not ready.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
