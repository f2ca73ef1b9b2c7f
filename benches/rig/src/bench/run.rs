//! One measurement of one rate of one workload: topics, connections, threads, and what they
//! counted.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::broker::Known;
use super::consumer::{Consumer, Role};
use super::content::{Pool, Writer};
use super::link;
use super::measure::{Clock, Live, Recorder, Window};
use super::members::Members;
use super::producer::Producer;
use super::progress::Progress;
use super::schedule::Schedule;
use super::template::Template;
use super::txn::Txn;
use super::worker::{Outcome, Owner, Terms, Worker};
use super::workload::{Kind, Membership, Rates, Workload};
use crate::cluster::{self, Topic};
use crate::connection::Connection;
use crate::consume;
use crate::error::{Error, Result};
use crate::payload::Batch;
use crate::txn::init_producer_id;
use crate::{procfs, produce};

/// Time for the threads to start.
const BEGIN_AFTER: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of all producers together.
const BUFFERS_BYTES_MAX: usize = 512 << 20;
/// Of FindCoordinator.
const TRANSACTION_KEY: i8 = 1;
const FOUND_WITHIN: Duration = Duration::from_secs(60);
const BACKLOG_BATCH_BYTES: usize = 256 << 10;

/// What a measurement runs on and is stopped by.
pub struct Site<'a> {
    pub known: &'a Known,
    /// Of a broker on this machine.
    pub broker_pid: Option<u32>,
    pub stop: &'a AtomicBool,
    /// Of this run; makes names of topics.
    pub run: String,
}

/// What came of it.
#[derive(Debug)]
pub struct Measured {
    pub recorder: Recorder,
    pub client_cores: f64,
    /// Of the busiest thread, how much of its time it ran or waited for a processor.
    pub busiest: f64,
    pub threads: usize,
    pub connections: usize,
    pub broker_cpu_seconds: Option<f64>,
    pub broker_memory: Option<procfs::Memory>,
    /// More was due than the broker took, and the load ended by that.
    pub overrun: bool,
    pub stopped: bool,
}

/// Measures a workload at one rate; `number` tells this measurement from others of the run, `seen`
/// is told a topic that is used while it is there.
pub fn measure(
    site: &Site<'_>,
    workload: &Workload,
    rate: Option<f64>,
    number: usize,
    seen: &mut dyn FnMut(&str),
    progress: &mut Progress,
) -> Result<Measured> {
    let mut workload = workload.clone();
    workload.rate = Rates(rate.into_iter().collect());
    let mut stage = Stage { site, workload, topics: Vec::new(), again: Vec::new() };
    let outcome = stage.measure(number, seen, progress);
    let tidied = stage.tidy();
    outcome.and_then(|measured| tidied.map(|()| measured))
}

struct Stage<'a> {
    site: &'a Site<'a>,
    workload: Workload,
    /// Produced to.
    topics: Vec<Arc<Topic>>,
    /// Written before.
    again: Vec<Arc<Topic>>,
}

impl Stage<'_> {
    fn measure(
        &mut self,
        number: usize,
        seen: &mut dyn FnMut(&str),
        progress: &mut Progress,
    ) -> Result<Measured> {
        let name = format!("bench-{}-{number}", self.site.run);
        progress.say("making topics");
        let mut records_a_partition = 0;
        if self.workload.kind.produces() {
            self.topics = self.create(&name, self.workload.topics)?;
        }
        if matches!(self.workload.kind, Kind::Consume | Kind::Mixed) {
            progress.say("writing the backlog");
            let count = if self.workload.kind == Kind::Consume { self.workload.topics } else { 1 };
            self.again = self.create(&format!("{name}-backlog"), count)?;
            records_a_partition = self.fill_backlog()?;
        }
        let members = self.join(progress)?;
        let (members, shares) = match members {
            Some((members, shares)) => (Some(members), Some(shares)),
            None => (None, None),
        };
        progress.say("connecting");
        let crew = self.crew(shares.as_deref(), records_a_partition)?;
        if let Some(topic) = self.topics.first().or(self.again.first()) {
            seen(&topic.name);
        }
        let measured = self.watch(crew, progress)?;
        if let Some(members) = &members {
            members.still_settled()?;
        }
        Ok(measured)
    }

    fn create(&self, name: &str, count: usize) -> Result<Vec<Arc<Topic>>> {
        let configs = self.workload.topic_config.iter();
        let configs: Vec<(&str, &str)> =
            configs.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut topics = Vec::with_capacity(count);
        for number in 0..count {
            self.not_stopped()?;
            let topic = cluster::create_replicated(
                self.site.known.at,
                &format!("{name}-{number}"),
                self.workload.partitions,
                self.workload.replication_factor,
                &configs,
            )?;
            consume::await_readable(&topic)?;
            topics.push(Arc::new(topic));
        }
        Ok(topics)
    }

    fn not_stopped(&self) -> Result<()> {
        match self.site.stop.load(Ordering::Relaxed) {
            true => Err(Error::Usage("stopped before anything was measured".to_owned())),
            false => Ok(()),
        }
    }

    /// Writes what is read again; gives the records of each partition.
    fn fill_backlog(&self) -> Result<i64> {
        let batch = Batch::build(self.workload.record_bytes.most, BACKLOG_BATCH_BYTES)?;
        let mut records = 0;
        for topic in &self.again {
            self.not_stopped()?;
            let load = produce::Load { topic, batch: &batch, connections: 2, in_flight: 5 };
            let bytes = (self.workload.backlog_mib << 20) / self.again.len().max(1) as u64;
            let batches = produce::run_volume(&load, bytes)?;
            records = i64::try_from(batches * batch.records).unwrap_or(i64::MAX);
        }
        Ok(records)
    }

    /// Members of groups, if consumers are such, and what each of them owns.
    fn join(&self, progress: &mut Progress) -> Result<Option<(Members, Vec<Vec<i32>>)>> {
        let workload = &self.workload;
        if workload.group_protocol == Membership::None || workload.consumer_count() == 0 {
            return Ok(None);
        }
        progress.say("joining groups");
        let stopped = || self.site.stop.load(Ordering::Relaxed);
        let joined = Members::join(
            self.site.known.at,
            workload.group_protocol,
            self.followed(),
            workload.groups,
            workload.consumers,
            &stopped,
        )?;
        Ok(Some(joined))
    }

    /// What consumers read.
    fn followed(&self) -> &[Arc<Topic>] {
        if self.workload.kind == Kind::Consume { &self.again } else { &self.topics }
    }

    /// All threads with their connections, not yet started.
    fn crew(&self, shares: Option<&[Vec<i32>]>, records_a_partition: i64) -> Result<Crew> {
        let workload = &self.workload;
        let pool = Pool::make(workload)?;
        let threads = workload.thread_count();
        // Topics of one kind before those of the other, as consumers count through them.
        let topics: Vec<Arc<Topic>> = self.topics.iter().chain(&self.again).cloned().collect();
        let mean_bytes = match workload.kind {
            Kind::Consume => workload.record_bytes.most as f64,
            _ => pool.mean_bytes(workload.record_bytes),
        };
        let window = Window::new(workload.warmup_seconds, workload.seconds);
        let terms = Terms {
            workload: workload.clone(),
            produce_version: self.site.known.produce_version,
            fetch_version: self.site.known.fetch_version,
            topics,
            mean_bytes,
            window,
            threads,
        };
        let mut crew = Crew {
            terms: Arc::new(terms),
            benches: (0..threads).map(|_| Bench::default()).collect(),
            window,
        };
        let templates = Template::all(workload, &pool, now_ms())?;
        for number in 0..workload.producer_count() {
            self.not_stopped()?;
            let topic = self.topics.get(number % workload.topics);
            let Some(topic) = topic else { break };
            let writer = Writer::new(&pool, workload, number);
            crew.add_producer(self.site, number, topic, writer, templates.clone())?;
        }
        for (role, partitions) in self.readers(shares, records_a_partition) {
            self.not_stopped()?;
            crew.add_consumer(role, &partitions)?;
        }
        Ok(crew)
    }

    /// Every consumer's role, and its partitions by the topic's place among all topics.
    fn readers(&self, shares: Option<&[Vec<i32>]>, records: i64) -> Vec<(Role, Vec<(usize, i32)>)> {
        let workload = &self.workload;
        let again = Role::Again { records_a_partition: records };
        let role = if workload.kind == Kind::Consume { again } else { Role::Follow };
        let mut readers = Vec::new();
        if workload.kind != Kind::Produce {
            for number in 0..workload.consumer_count() {
                let topic = number / (workload.groups * workload.consumers).max(1);
                let member = number % workload.consumers.max(1);
                let share: Vec<i32> = match shares {
                    Some(shares) => shares.get(number).cloned().unwrap_or_default(),
                    None => (0..workload.partitions)
                        .filter(|index| {
                            usize::try_from(*index).unwrap_or(0) % workload.consumers == member
                        })
                        .collect(),
                };
                readers.push((role, share.into_iter().map(|index| (topic, index)).collect()));
            }
        }
        if workload.kind == Kind::Mixed {
            let backlog = self.topics.len();
            let all: Vec<(usize, i32)> =
                (0..workload.partitions).map(|index| (backlog, index)).collect();
            readers.extend((0..workload.backlog_readers).map(|_| (again, all.clone())));
        }
        readers
    }

    /// Starts the threads, watches them to their end, and adds up what they counted.
    fn watch(&self, crew: Crew, progress: &mut Progress) -> Result<Measured> {
        let live = Arc::new(Live::default());
        let (window, threads, connections) = (crew.window, crew.benches.len(), crew.connections());
        let clock = Clock(Instant::now() + BEGIN_AFTER);
        let handles = crew.start(&live, clock, &self.workload)?;
        let marks = self.follow(&live, clock, window, &handles, progress);
        if marks.is_err() {
            // Nobody else would end the threads before their time.
            live.stop();
        }
        let stopped = live.stopped() || self.site.stop.load(Ordering::Relaxed);
        let mut recorder: Option<Recorder> = None;
        let (mut busiest, mut overrun, mut failed) = (0.0f64, false, None);
        for handle in handles {
            let ended = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match ended {
                Ok(Outcome { recorder: one, busy, overrun: over }) => {
                    busiest = busiest.max(busy);
                    overrun |= over;
                    match &mut recorder {
                        Some(all) => {
                            all.window.until = all.window.until.max(one.window.until);
                            all.add(&one);
                        }
                        None => recorder = Some(one),
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let mut recorder = recorder.ok_or_else(|| Error::Usage("no threads".to_owned()))?;
        recorder.settle();
        let marks = marks?;
        Ok(Measured {
            recorder,
            client_cores: marks.client_cores,
            busiest,
            threads,
            connections,
            broker_cpu_seconds: marks.broker_cpu_seconds,
            broker_memory: self.site.broker_pid.and_then(|pid| procfs::memory(pid).ok()),
            overrun,
            stopped,
        })
    }

    /// Looks at the processes when the window begins and ends, and shows progress.
    fn follow(
        &self,
        live: &Live,
        clock: Clock,
        window: Window,
        handles: &[JoinHandle<Result<Outcome>>],
        progress: &mut Progress,
    ) -> Result<Marks> {
        let look = || -> Result<(f64, Option<f64>, Instant)> {
            let client = procfs::cpu_seconds(std::process::id())?;
            let broker = self.site.broker_pid.map(procfs::cpu_seconds).transpose()?;
            Ok((client, broker, Instant::now()))
        };
        let (mut first, mut last) = (None, None);
        while !handles.iter().all(JoinHandle::is_finished) {
            thread::sleep(LOOK_EVERY);
            if self.site.stop.load(Ordering::Relaxed) {
                live.stop();
            }
            let now = clock.now();
            let over = now >= window.until || live.stopped();
            if first.is_none() && now >= window.from {
                first = Some(look()?);
            }
            if last.is_none() && over {
                last = Some(look()?);
            }
            progress.show(live, &self.workload, now, window);
        }
        let Some(((client, broker, from), (client_end, broker_end, to))) = first.zip(last) else {
            return Ok(Marks { client_cores: 0.0, broker_cpu_seconds: None });
        };
        let wall = to.duration_since(from).as_secs_f64();
        Ok(Marks {
            client_cores: if wall > 0.0 { (client_end - client) / wall } else { 0.0 },
            broker_cpu_seconds: broker.zip(broker_end).map(|(from, to)| to - from),
        })
    }

    /// Every topic is tried, whatever becomes of the others.
    fn tidy(&self) -> Result<()> {
        let topics = self.topics.iter().chain(&self.again);
        let delete = |topic: &Arc<Topic>| cluster::delete(self.site.known.at, topic);
        let outcomes: Vec<Result<()>> = topics.map(delete).collect();
        outcomes.into_iter().collect()
    }
}

struct Marks {
    client_cores: f64,
    broker_cpu_seconds: Option<f64>,
}

/// What one thread will have.
#[derive(Default)]
struct Bench {
    links: Vec<link::Link>,
    inboxes: Vec<link::Inbox>,
    owners: Vec<Owner>,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
}

impl Bench {
    fn connect(&mut self, to: SocketAddr, owner: Owner) -> Result<usize> {
        let (link, inbox) = link::open(to)?;
        self.links.push(link);
        self.inboxes.push(inbox);
        self.owners.push(owner);
        Ok(self.links.len() - 1)
    }
}

struct Crew {
    terms: Arc<Terms>,
    benches: Vec<Bench>,
    window: Window,
}

impl Crew {
    fn connections(&self) -> usize {
        self.benches.iter().map(|bench| bench.links.len()).sum()
    }

    fn add_producer(
        &mut self,
        site: &Site<'_>,
        number: usize,
        topic: &Arc<Topic>,
        writer: Writer,
        templates: Option<Arc<Vec<Template>>>,
    ) -> Result<()> {
        let workload = &self.terms.workload;
        let threads = self.benches.len();
        let Some(bench) = self.benches.get_mut(number % threads) else { return Ok(()) };
        let at = bench.producers.len();
        let nodes = nodes(topic.leaders.iter().copied());
        let mut links = Vec::with_capacity(nodes.len());
        for (lane, node) in nodes.iter().enumerate() {
            links.push((*node, bench.connect(*node, Owner::Producer { at, lane })?));
        }
        let most = BUFFERS_BYTES_MAX / workload.producer_count().max(1);
        let buffer = workload.buffer_bytes.min(most.max(workload.batch_bytes));
        let mut producer = Producer::new(at, topic, &links, writer, templates, buffer);
        if workload.transactional() {
            if !site.known.transactions {
                let what = "transactions need a broker that speaks those of KIP-890";
                return Err(Error::Usage(what.to_owned()));
            }
            let id = format!("bench-{}-{}-{number}", site.run, topic.name);
            let (coordinator, identity) = take_id(site.known.at, &id)?;
            producer.identity = Some(identity);
            let link = bench.connect(coordinator, Owner::Coordinator { producer: at })?;
            producer.txn = Some(Txn::new(id, link));
        } else if workload.idempotence {
            let node = nodes.first().copied().unwrap_or(site.known.at);
            producer.identity = Some(init_producer_id(&mut Connection::open(node)?, None)?);
        }
        bench.producers.push(producer);
        Ok(())
    }

    fn add_consumer(&mut self, role: Role, partitions: &[(usize, i32)]) -> Result<()> {
        let topics = &self.terms.topics;
        let leader = |&(topic, index): &(usize, i32)| {
            let index = usize::try_from(index).ok()?;
            topics.get(topic)?.leaders.get(index).copied()
        };
        let nodes = nodes(partitions.iter().filter_map(leader));
        // From the last thread on, so that few producers and few consumers do not share one.
        let Some(bench) = self
            .benches
            .iter_mut()
            .rev()
            .min_by_key(|bench| (bench.consumers.len(), bench.producers.len()))
        else {
            return Ok(());
        };
        let at = bench.consumers.len();
        let mut links = Vec::with_capacity(nodes.len());
        for (lane, node) in nodes.iter().enumerate() {
            links.push((*node, bench.connect(*node, Owner::Consumer { at, lane })?));
        }
        bench.consumers.push(Consumer::new(role, topics, partitions, &links));
        Ok(())
    }

    fn start(
        self,
        live: &Arc<Live>,
        clock: Clock,
        workload: &Workload,
    ) -> Result<Vec<JoinHandle<Result<Outcome>>>> {
        let lanes = self.benches.iter().filter(|bench| !bench.producers.is_empty()).count();
        let producers: usize = self.benches.iter().map(|bench| bench.producers.len()).sum();
        let mut lane = 0;
        let mut handles = Vec::with_capacity(self.benches.len());
        for (number, bench) in self.benches.into_iter().enumerate() {
            let schedule = workload.rate.0.first().filter(|_| !bench.producers.is_empty());
            let schedule = schedule.map(|rate| {
                let (arrivals, seed) = (workload.arrivals, workload.seed);
                // Threads with more producers get more records.
                let share = bench.producers.len() as f64 / producers.max(1) as f64;
                let even = rate * share * lanes as f64;
                let schedule = Schedule::new(arrivals, even, seed, lane, lanes);
                lane += 1;
                schedule
            });
            let worker = Worker {
                terms: Arc::clone(&self.terms),
                live: Arc::clone(live),
                clock,
                links: bench.links,
                inboxes: bench.inboxes,
                owners: bench.owners,
                producers: bench.producers,
                consumers: bench.consumers,
                schedule,
                recorder: match workload.stamps() {
                    true => Recorder::new(self.window).followed(workload.groups),
                    false => Recorder::new(self.window),
                },
            };
            let thread = thread::Builder::new().name(format!("load-{number}"));
            let handle = thread.spawn(move || worker.run());
            handles.push(handle.map_err(Error::io("start a thread"))?);
        }
        Ok(handles)
    }
}

/// Each once.
fn nodes(leaders: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut seen = HashMap::new();
    let mut nodes = Vec::new();
    for leader in leaders {
        seen.entry(leader).or_insert_with(|| nodes.push(leader));
    }
    nodes
}

/// Takes a transactional id from its coordinator; gives where that is, and the producer's id and
/// epoch. The first one that is asked for has the broker make its internal topic, which takes a while.
fn take_id(at: SocketAddr, id: &str) -> Result<(SocketAddr, (i64, i16))> {
    let begun = Instant::now();
    let once = || {
        let found = cluster::coordinators(at, TRANSACTION_KEY, &[id.to_owned()])?;
        let found = found.first().copied().ok_or_else(|| Error::NoLeader(id.to_owned()))?;
        Ok((found, init_producer_id(&mut Connection::open(found)?, Some(id))?))
    };
    loop {
        match once() {
            Ok(taken) => return Ok(taken),
            Err(error) if begun.elapsed() > FOUND_WITHIN => return Err(error),
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
