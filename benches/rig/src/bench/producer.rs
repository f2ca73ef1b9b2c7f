//! One producer: records into batches, batches into requests, answers into latencies.
//!
//! It does what Kafka's own producers do: a batch goes when it is full or has lingered, a request
//! takes one batch of every partition that has one, so many requests are on the way to a node. A
//! full buffer makes what is due wait; it then counts from when it was due. Lives on one thread
//! with many others; the links are that thread's.

use std::collections::VecDeque;
use std::sync::Arc;

use wire::hash::partition_for_key;
use wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use wire::messages::{ProduceRequest, ProduceResponse};
use wire::records::BatchBuilder;
use wire::{ApiKey, Message, Reader, Records};

use super::content::Writer;
use super::link::Link;
use super::measure::{Live, Recorder};
use super::template::Template;
use super::txn::Txn;
use super::workload::{Acks, Workload};
use crate::cluster::Topic;
use crate::connection::body_of;
use crate::error::{Error, Result};

/// Lengths, offset and timestamp around a value; an upper bound.
const RECORD_OVERHEAD_BYTES: usize = 24;
const TIMEOUT_MS: i32 = 30_000;
/// The first version that names topics by id.
const TOPIC_ID_VERSION: i16 = 13;

/// What the thread lends to its producers.
pub struct Shop<'a> {
    pub workload: &'a Workload,
    pub version: i16,
    pub links: &'a mut [Link],
    pub recorder: &'a mut Recorder,
    pub live: &'a Live,
    /// Batches that linger, in the order in which they will have.
    pub lingering: &'a mut VecDeque<Lingering>,
    pub now: u64,
    pub now_ms: i64,
}

#[derive(Debug, Clone, Copy)]
pub struct Lingering {
    pub until: u64,
    pub producer: usize,
    partition: usize,
    batch: u64,
}

#[derive(Debug)]
pub struct Producer {
    number: usize,
    topic: Arc<Topic>,
    lanes: Vec<Lane>,
    parts: Vec<Part>,
    writer: Writer,
    /// Batches made beforehand, where nothing has to be made for each record.
    templates: Option<Arc<Vec<Template>>>,
    turn: usize,
    /// The partition that gets records without keys, and how much it got.
    sticky: usize,
    stuck_bytes: usize,
    buffered: usize,
    buffer_bytes: usize,
    /// Due and not taken up, since there was no room.
    waiting: VecDeque<u64>,
    /// When there was room again.
    free_since: u64,
    /// Of an idempotent producer.
    pub identity: Option<(i64, i16)>,
    pub txn: Option<Txn>,
    batches: u64,
    value: Vec<u8>,
}

/// The way to one node.
#[derive(Debug)]
struct Lane {
    link: usize,
    partitions: Vec<usize>,
    /// Partitions with a batch to send.
    ready: VecDeque<usize>,
    flying: VecDeque<Request>,
}

#[derive(Debug)]
struct Request {
    correlation: i32,
    batches: Vec<(usize, Sealed)>,
}

#[derive(Debug)]
struct Part {
    lane: usize,
    open: Option<Open>,
    sealed: VecDeque<Sealed>,
    sequence: i32,
    /// It stands in its lane's `ready`.
    queued: bool,
}

#[derive(Debug)]
struct Open {
    builder: BatchBuilder,
    number: u64,
    until: u64,
    dues: Vec<u64>,
    records: u32,
    value_bytes: u64,
    taken: usize,
}

/// Ready to be sent, or on its way.
#[derive(Debug)]
pub struct Sealed {
    pub bytes: Vec<u8>,
    dues: Vec<u64>,
    pub records: u32,
    value_bytes: u64,
    /// Of the buffer.
    taken: usize,
}

impl Producer {
    /// `links` are to the nodes that lead partitions of the topic, one a node, with their
    /// addresses.
    pub fn new(
        number: usize,
        topic: &Arc<Topic>,
        links: &[(std::net::SocketAddr, usize)],
        writer: Writer,
        templates: Option<Arc<Vec<Template>>>,
        buffer_bytes: usize,
    ) -> Self {
        let lane = |&(_, link): &(_, usize)| Lane {
            link,
            partitions: Vec::new(),
            ready: VecDeque::new(),
            flying: VecDeque::new(),
        };
        let mut lanes: Vec<Lane> = links.iter().map(lane).collect();
        let mut parts = Vec::with_capacity(topic.leaders.len());
        for (partition, leader) in topic.leaders.iter().enumerate() {
            let at = links.iter().position(|(node, _)| node == leader).unwrap_or(0);
            if let Some(lane) = lanes.get_mut(at) {
                lane.partitions.push(partition);
            }
            let sealed = VecDeque::new();
            parts.push(Part { lane: at, open: None, sealed, sequence: 0, queued: false });
        }
        let sticky = number % parts.len().max(1);
        Producer {
            number,
            topic: Arc::clone(topic),
            lanes,
            parts,
            writer,
            templates,
            turn: number,
            sticky,
            stuck_bytes: 0,
            buffered: 0,
            buffer_bytes,
            waiting: VecDeque::new(),
            free_since: 0,
            identity: None,
            txn: None,
            batches: 0,
            value: Vec::new(),
        }
    }

    /// A record is due. It is taken up now, or as soon as there is room.
    pub fn due(&mut self, due: u64, shop: &mut Shop<'_>) -> Result<()> {
        if !self.waiting.is_empty() || !self.has_room() {
            self.waiting.push_back(due);
            return Ok(());
        }
        self.take_up(Some(due), shop)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A closed loop has something to take up at once.
    pub fn takes_more(&self, in_flight: usize) -> bool {
        if self.templates.is_none() {
            return self.has_room();
        }
        // Without acknowledgements what the kernel took is done, and no event tells of it.
        self.lanes.iter().any(|lane| !lane.partitions.is_empty() && lane.flying.len() < in_flight)
    }

    fn has_room(&self) -> bool {
        self.buffered < self.buffer_bytes && self.txn.as_ref().is_none_or(Txn::takes)
    }

    /// Takes up what waits, as far as there is room.
    fn catch_up(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        while self.has_room() {
            let Some(due) = self.waiting.pop_front() else { return Ok(()) };
            self.take_up(Some(due), shop)?;
        }
        Ok(())
    }

    /// A closed loop: takes up records until the buffer is full, at most so many.
    pub fn fill(&mut self, most: usize, shop: &mut Shop<'_>) -> Result<()> {
        if self.templates.is_some() {
            return self.send_templates(most, shop);
        }
        for _ in 0..most {
            if !self.has_room() {
                return self.exhausted(shop);
            }
            self.take_up(None, shop)?;
        }
        Ok(())
    }

    fn take_up(&mut self, due: Option<u64>, shop: &mut Shop<'_>) -> Result<()> {
        if let Some(due) = due {
            // Only what the broker did not hold up is the client's own lateness.
            shop.recorder.slipped(due, shop.now.saturating_sub(due.max(self.free_since)));
        }
        let stamp = due.filter(|_| shop.workload.stamps()).map(u64::to_be_bytes);
        self.writer.value(&mut self.value, stamp);
        let partitions = self.parts.len();
        let key = self.writer.key();
        let partition = match key {
            Some(key) => {
                let count = i32::try_from(partitions).unwrap_or(i32::MAX);
                usize::try_from(partition_for_key(key, count)).unwrap_or(0)
            }
            None => self.sticky,
        };
        let size = self.value.len() + key.map_or(0, <[u8]>::len) + RECORD_OVERHEAD_BYTES;
        let batch_bytes = shop.workload.batch_bytes;
        let Some(part) = self.parts.get_mut(partition) else { return Ok(()) };
        let is_full = |open: &Open| open.builder.uncompressed_bytes() + size > batch_bytes;
        if part.open.as_ref().is_some_and(is_full) {
            let identity = self.identity;
            seal(part, identity, self.txn.is_some())?;
            queue(part, partition, &mut self.lanes);
        }
        if part.open.is_none() {
            self.batches += 1;
            let until = shop.now + u64::try_from(shop.workload.linger().as_nanos()).unwrap_or(0);
            let number = self.batches;
            part.open = Some(Open::new(shop.workload, number, until));
            let producer = self.number;
            shop.lingering.push_back(Lingering { until, producer, partition, batch: number });
        }
        if let Some(open) = &mut part.open {
            open.builder.append(shop.now_ms, key, Some(&self.value));
            open.dues.extend(due);
            open.records += 1;
            open.value_bytes += self.value.len() as u64;
            open.taken += size;
        }
        let keyless = key.is_none();
        self.buffered += size;
        if keyless {
            self.stuck_bytes += size;
            if self.stuck_bytes >= batch_bytes {
                (self.sticky, self.stuck_bytes) = ((self.sticky + 1) % partitions.max(1), 0);
            }
        }
        if let Some(txn) = &mut self.txn {
            txn.add(due, partition);
            if txn.is_full(shop.workload.transaction_records) {
                return self.close_transaction(shop);
            }
        }
        self.send_full(partition, shop)
    }

    /// What is full goes at once.
    fn send_full(&mut self, partition: usize, shop: &mut Shop<'_>) -> Result<()> {
        match self.parts.get(partition) {
            Some(part) if part.queued => {
                let lane = part.lane;
                self.drain(lane, shop)
            }
            _ => Ok(()),
        }
    }

    /// A batch has lingered.
    pub fn lingered(&mut self, which: Lingering, shop: &mut Shop<'_>) -> Result<()> {
        let Some(part) = self.parts.get_mut(which.partition) else { return Ok(()) };
        if part.open.as_ref().is_some_and(|open| open.number == which.batch) {
            queue(part, which.partition, &mut self.lanes);
            let lane = part.lane;
            return self.drain(lane, shop);
        }
        Ok(())
    }

    /// The buffer is full: nothing lingers any longer.
    fn exhausted(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        for (partition, part) in self.parts.iter_mut().enumerate() {
            if let Some(open) = &mut part.open {
                open.until = shop.now;
                queue(part, partition, &mut self.lanes);
            }
        }
        self.drain_all(shop)
    }

    /// Everything that was taken up goes now.
    pub fn flush(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        if self.txn.as_ref().is_some_and(Txn::is_begun) {
            self.close_transaction(shop)?;
        }
        self.exhausted(shop)
    }

    fn close_transaction(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        let Some(txn) = &mut self.txn else { return Ok(()) };
        for partition in txn.close() {
            if let Some(part) = self.parts.get_mut(partition)
                && let Some(open) = &mut part.open
            {
                open.until = shop.now;
                queue(part, partition, &mut self.lanes);
            }
        }
        self.drain_all(shop)?;
        self.end_transaction(shop)
    }

    /// Once all of its records are acknowledged.
    pub fn end_transaction(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        let Some((txn, (id, epoch))) = self.txn.as_mut().zip(self.identity) else { return Ok(()) };
        if let Some(link) = txn.due_commit(shop.now)
            && let Some(link) = shop.links.get_mut(link)
        {
            txn.commit(link, id, epoch)?;
        }
        Ok(())
    }

    /// The coordinator answers.
    pub fn committed(&mut self, frame: &[u8], shop: &mut Shop<'_>) -> Result<()> {
        let Some(txn) = &mut self.txn else { return Ok(()) };
        let Some(identity) = txn.committed(frame, shop.now, shop.recorder)? else { return Ok(()) };
        self.identity = Some(identity);
        self.parts.iter_mut().for_each(|part| part.sequence = 0);
        self.free_since = shop.now;
        self.catch_up(shop)
    }

    fn drain_all(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        (0..self.lanes.len()).try_for_each(|lane| self.drain(lane, shop))
    }

    /// Sends as many requests to one node as may be on the way.
    fn drain(&mut self, at: usize, shop: &mut Shop<'_>) -> Result<()> {
        let most = if self.txn.is_some() { 1 } else { shop.workload.in_flight };
        loop {
            let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
            if lane.flying.len() >= most || lane.ready.is_empty() {
                return Ok(());
            }
            let transactional = self.txn.is_some();
            let limits = (shop.workload.request_bytes, shop.now);
            let batches = gather(lane, &mut self.parts, self.identity, transactional, limits)?;
            if batches.is_empty() {
                return Ok(());
            }
            self.send(at, batches, shop)?;
        }
    }

    fn send(
        &mut self,
        at: usize,
        batches: Vec<(usize, Sealed)>,
        shop: &mut Shop<'_>,
    ) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let data = batches.iter().map(|(partition, sealed)| PartitionProduceData {
            index: i32::try_from(*partition).unwrap_or(i32::MAX),
            records: Some(Records::Borrowed(&sealed.bytes)),
        });
        let by_id = shop.version >= TOPIC_ID_VERSION;
        let topic = TopicProduceData {
            name: if by_id { "".into() } else { self.topic.name.as_str().into() },
            topic_id: if by_id { self.topic.id } else { wire::Uuid::ZERO },
            partition_data: data.collect(),
        };
        let request = ProduceRequest {
            transactional_id: self.txn.as_ref().map(|txn| txn.id().into()),
            acks: shop.workload.acks.code(),
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![topic].into(),
        };
        let Some(link) = shop.links.get_mut(lane.link) else { return Ok(()) };
        let correlation = link.request(&request, shop.version)?;
        lane.flying.push_back(Request { correlation, batches });
        if shop.workload.acks == Acks::None {
            self.written(at, shop)?;
        }
        Ok(())
    }

    /// Without acknowledgements a request is done once the kernel has all of it.
    pub fn written(&mut self, at: usize, shop: &mut Shop<'_>) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        if !shop.links.get(lane.link).is_some_and(Link::is_flushed) {
            return Ok(());
        }
        let done: Vec<Request> = lane.flying.drain(..).collect();
        if done.is_empty() {
            return Ok(());
        }
        for (_, sealed) in done.into_iter().flat_map(|request| request.batches) {
            self.done(&sealed, shop);
        }
        self.drain(at, shop)?;
        self.room(shop)
    }

    /// A broker answers.
    pub fn answered(&mut self, at: usize, frame: &[u8], shop: &mut Shop<'_>) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(at) else { return Ok(()) };
        let Some(request) = lane.flying.pop_front() else {
            return Err(Error::Unreadable("an answer to nothing".to_owned()));
        };
        let body = body_of(frame, ApiKey::Produce, shop.version, request.correlation)?;
        let answer = ProduceResponse::decode(&mut Reader::new(body), shop.version)?;
        let mut codes = Vec::with_capacity(request.batches.len());
        for topic in &answer.responses {
            codes.extend(topic.partition_responses.iter().map(|one| (one.index, one.error_code)));
        }
        for (number, (partition, sealed)) in request.batches.into_iter().enumerate() {
            let is = |(index, _): &&(i32, i16)| usize::try_from(*index) == Ok(partition);
            // Answers come in the order of the request, from all brokers so far.
            let code = codes.get(number).filter(is).or_else(|| codes.iter().find(is));
            let Some((_, code)) = code else {
                return Err(Error::Unreadable(format!("no answer for partition {partition}")));
            };
            if *code != 0 && self.txn.as_ref().is_some_and(|txn| txn.says_try_again(*code)) {
                self.put_back(partition, sealed, shop);
                continue;
            }
            Error::check(|| format!("produce to partition {partition}"), *code)?;
            self.done(&sealed, shop);
        }
        self.drain(at, shop)?;
        self.room(shop)
    }

    fn done(&mut self, sealed: &Sealed, shop: &mut Shop<'_>) {
        let was_full = !self.has_room();
        self.buffered = self.buffered.saturating_sub(sealed.taken);
        if was_full {
            self.free_since = shop.now;
        }
        let (records, bytes) = (u64::from(sealed.records), sealed.value_bytes);
        shop.recorder.acked(shop.live, &sealed.dues, records, bytes, shop.now);
        if let Some(txn) = &mut self.txn {
            txn.acked(sealed.records);
        }
    }

    fn room(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        self.end_transaction(shop)?;
        self.catch_up(shop)
    }

    /// To be sent again after a pause, before everything else of its partition.
    fn put_back(&mut self, partition: usize, sealed: Sealed, shop: &mut Shop<'_>) {
        shop.recorder.tried_again += 1;
        if let Some(part) = self.parts.get_mut(partition) {
            part.sealed.push_front(sealed);
        }
        if let Some(txn) = &mut self.txn {
            txn.retry_later(partition, shop.now);
        }
    }

    /// When it wants to be woken beside what lingers.
    pub fn wake_at(&self) -> Option<u64> {
        self.txn.as_ref().and_then(Txn::wake_at)
    }

    pub fn woken(&mut self, shop: &mut Shop<'_>) -> Result<()> {
        let Some(txn) = &mut self.txn else { return Ok(()) };
        for partition in txn.due_retries(shop.now) {
            if let Some(part) = self.parts.get_mut(partition) {
                queue(part, partition, &mut self.lanes);
            }
        }
        self.drain_all(shop)?;
        self.end_transaction(shop)
    }

    /// Nothing is left to send or to hear.
    pub fn is_idle(&self) -> bool {
        self.buffered == 0
            && self.waiting.is_empty()
            && self.lanes.iter().all(|lane| lane.flying.is_empty())
            && self.txn.as_ref().is_none_or(|txn| !txn.is_begun())
    }

    /// The load ends: what is not acknowledged will not be any more, nor will a transaction be
    /// committed, those that were still to begin among them.
    pub fn give_up(&mut self, transaction_records: usize, recorder: &mut Recorder, now: u64) {
        if let Some(txn) = &self.txn {
            let waiting = self.waiting.iter().step_by(transaction_records.max(1));
            for first in txn.uncommitted().iter().chain(waiting) {
                recorder.gave_up_commit(*first, now);
            }
        }
        let flying = self.lanes.iter().flat_map(|lane| &lane.flying);
        let flying = flying.flat_map(|request| &request.batches).map(|(_, sealed)| sealed);
        let parts = self.parts.iter();
        let open = parts.clone().filter_map(|part| part.open.as_ref()).flat_map(|open| &open.dues);
        let sealed = parts.flat_map(|part| &part.sealed).chain(flying);
        let sealed = sealed.flat_map(|sealed| &sealed.dues);
        for due in open.chain(sealed).chain(&self.waiting) {
            recorder.gave_up(*due, now);
        }
    }

    /// To each node what may be on the way, or at most so many records and a request: where nothing
    /// is acknowledged the kernel may take bytes for ever.
    fn send_templates(&mut self, most: usize, shop: &mut Shop<'_>) -> Result<()> {
        let Some(templates) = self.templates.clone() else { return Ok(()) };
        for at in 0..self.lanes.len() {
            let mut records = 0;
            while let Some(lane) = self.lanes.get(at)
                && records < most
                && lane.flying.len() < shop.workload.in_flight
                && !lane.partitions.is_empty()
            {
                let mut batches = Vec::new();
                let mut size = 0;
                for _ in 0..lane.partitions.len() {
                    let partition = lane.partitions.get(self.turn % lane.partitions.len());
                    let template = templates.get(self.turn % templates.len().max(1));
                    let Some((&partition, template)) = partition.zip(template) else { break };
                    if size > 0 && size + template.bytes.len() > shop.workload.request_bytes {
                        break;
                    }
                    self.turn += 1;
                    size += template.bytes.len();
                    records += usize::try_from(template.records).unwrap_or(most);
                    let Some(part) = self.parts.get_mut(partition) else { break };
                    let identity = self.identity.map(|(id, epoch)| (id, epoch, part.sequence));
                    part.sequence = advance(part.sequence, template.records);
                    batches.push((partition, template.sealed(identity)?));
                }
                self.send(at, batches, shop)?;
            }
        }
        Ok(())
    }
}

impl Sealed {
    /// Without a place in the buffer, and due at no time.
    pub fn of_template(bytes: Vec<u8>, records: u32, value_bytes: u64) -> Self {
        Sealed { bytes, dues: Vec::new(), records, value_bytes, taken: 0 }
    }
}

impl Open {
    fn new(workload: &Workload, number: u64, until: u64) -> Self {
        let builder = BatchBuilder::new().codec(workload.codec, workload.codec_level);
        Open { builder, number, until, dues: Vec::new(), records: 0, value_bytes: 0, taken: 0 }
    }
}

/// Sequence numbers begin again after the last one.
fn advance(sequence: i32, records: u32) -> i32 {
    let next = i64::from(sequence) + i64::from(records);
    i32::try_from(next % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

fn seal(part: &mut Part, identity: Option<(i64, i16)>, transactional: bool) -> Result<()> {
    let Some(open) = part.open.take() else { return Ok(()) };
    let mut builder = open.builder;
    if let Some((id, epoch)) = identity {
        builder = builder.producer(id, epoch, part.sequence).transactional(transactional);
        part.sequence = advance(part.sequence, open.records);
    }
    let bytes = builder.build().map_err(|error| Error::Batch(error.to_string()))?;
    part.sealed.push_back(Sealed {
        bytes,
        dues: open.dues,
        records: open.records,
        value_bytes: open.value_bytes,
        taken: open.taken,
    });
    Ok(())
}

fn queue(part: &mut Part, partition: usize, lanes: &mut [Lane]) {
    if !part.queued
        && let Some(lane) = lanes.get_mut(part.lane)
    {
        part.queued = true;
        lane.ready.push_back(partition);
    }
}

/// One batch of every partition that has one to send, up to the size of a request.
fn gather(
    lane: &mut Lane,
    parts: &mut [Part],
    identity: Option<(i64, i16)>,
    transactional: bool,
    (request_bytes, now): (usize, u64),
) -> Result<Vec<(usize, Sealed)>> {
    let (mut batches, mut size) = (Vec::new(), 0);
    for _ in 0..lane.ready.len() {
        let Some(partition) = lane.ready.pop_front() else { break };
        let Some(part) = parts.get_mut(partition) else { continue };
        // It stands here since it is full or has lingered; until now more could join it.
        if part.sealed.is_empty() {
            seal(part, identity, transactional)?;
        }
        let Some(sealed) = part.sealed.front() else {
            part.queued = false;
            continue;
        };
        if size > 0 && size + sealed.bytes.len() > request_bytes {
            lane.ready.push_front(partition);
            break;
        }
        size += sealed.bytes.len();
        batches.extend(part.sealed.pop_front().map(|sealed| (partition, sealed)));
        let lingered = part.open.as_ref().is_some_and(|open| open.until <= now);
        part.queued = lingered || !part.sealed.is_empty();
        if part.queued {
            lane.ready.push_back(partition);
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::bench::content::Pool;
    use crate::bench::link;
    use crate::bench::measure::Window;

    #[test]
    fn without_acknowledgements_a_closed_loop_takes_up_a_bounded_number() {
        let workload =
            Workload { acks: Acks::None, batch_bytes: 1_000, partitions: 1, ..Workload::default() };
        let pool = Pool::make(&workload).unwrap();
        let templates = Template::all(&workload, &pool, 0).unwrap();
        let writer = Writer::new(&pool, &workload, 0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let node = listener.local_addr().unwrap();
        let (link, _inbox) = link::open(node).unwrap();
        let topic = Topic {
            name: "t".to_owned(),
            id: wire::Uuid::ZERO,
            leaders: vec![node],
            produce_version: crate::payload::PRODUCE_VERSION,
        };
        let mut one = Producer::new(0, &Arc::new(topic), &[(node, 0)], writer, templates, 1 << 20);
        let mut recorder = Recorder::new(Window::new(0.0, 1.0));
        let live = Live::default();
        // Less than the kernel takes without anybody who reads.
        one.fill(
            10,
            &mut Shop {
                workload: &workload,
                version: 9,
                links: &mut [link],
                recorder: &mut recorder,
                live: &live,
                lingering: &mut VecDeque::new(),
                now: 0,
                now_ms: 0,
            },
        )
        .unwrap();
        let records = recorder.steps.iter().map(|step| step.acked_records).sum::<u64>();
        assert!((10..100).contains(&records), "{records}");
        // Its thread comes again at once, with another look at the time.
        assert!(one.takes_more(workload.in_flight));
    }
}
