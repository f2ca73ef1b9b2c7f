//! All cells of one disk, and the largest ones of several disks at the same time.
//!
//! Each disk is measured on a thread and a ring of its own, as a shard would use it. Cells that
//! were begun when a signal came are kept out: what is given is whole.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use reactor::ShardSpec;

use crate::error::{Error, Result};
use crate::plan::{LARGEST_REQUEST, Plan, SMALL};
use crate::probe::{self, Figures, Kind};
use crate::stop::Stop;
use crate::target::Target;

/// Depth at which several disks are written to at the same time.
const TOGETHER_DEPTH: u32 = 8;
/// Entries enough for the largest depth beside what the reactor needs itself.
const RING_ENTRIES: u32 = 256;

/// What one disk can do.
#[derive(Debug, Clone, Default)]
pub struct Ceilings {
    pub file_bytes: u64,
    /// Of the minute before it began.
    pub load_average: f64,
    pub sequential_write: Vec<Figures>,
    pub sequential_read: Vec<Figures>,
    pub random_read: Vec<Figures>,
    /// Writes beside random reads of the same size.
    pub mixed: Vec<(Figures, Figures)>,
    pub synced_append: Option<Figures>,
    /// Not all of it was measured.
    pub stopped: bool,
}

impl Ceilings {
    /// The best sequential write, in MB/s.
    pub fn write(&self) -> f64 {
        best(&self.sequential_write)
    }

    pub fn read(&self) -> f64 {
        best(&self.sequential_read)
    }
}

fn best(figures: &[Figures]) -> f64 {
    figures.iter().map(Figures::megabytes_per_second).fold(0.0, f64::max)
}

/// Measures the disk below `dir`. `tell` hears what is about to be measured.
pub fn measure(
    dir: &Path,
    plan: &Plan,
    stop: &Stop,
    tell: impl Fn(&str) + Send + 'static,
) -> Result<Ceilings> {
    let (dir, plan, stop) = (dir.to_owned(), plan.clone(), stop.clone());
    on_a_shard(move || async move { measure_here(&dir, &plan, &stop, &tell).await })
}

fn on_a_shard<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + 'static,
{
    let shard = reactor::uring::spawn_shard(spec(), main).map_err(Error::Ring)?;
    shard.join().map_err(|_| Error::Thread)?.map_err(Error::Ring)?
}

fn spec() -> ShardSpec {
    ShardSpec { name: "disk".to_owned(), ring_entries: RING_ENTRIES, ..ShardSpec::default() }
}

async fn measure_here(
    dir: &Path,
    plan: &Plan,
    stop: &Stop,
    tell: &dyn Fn(&str),
) -> Result<Ceilings> {
    let failed = || Error::io("measure in", dir);
    let load_average = crate::facts::load_average();
    tell("filling the file");
    let target = Rc::new(Target::make(dir, plan, stop).await?);
    let mut found = Ceilings { file_bytes: target.bytes, load_average, ..Ceilings::default() };
    let size = hardware::format_size;
    for (kind, name) in [(Kind::SequentialWrite, "write"), (Kind::SequentialRead, "read")] {
        for &bytes in &plan.sizes {
            for &depth in &plan.depths {
                tell(&format!("sequential {name} {} × {depth}", size(bytes)));
                let cell = probe::run(&target, kind, bytes, depth, plan.cell, stop).await;
                let cell = cell.map_err(failed())?;
                if stop.requested() {
                    return Ok(Ceilings { stopped: true, ..found });
                }
                match kind {
                    Kind::SequentialWrite => found.sequential_write.push(cell),
                    _ => found.sequential_read.push(cell),
                }
            }
        }
    }
    for &depth in &plan.depths {
        tell(&format!("random read {} × {depth}", size(SMALL)));
        let cell = probe::run(&target, Kind::RandomRead, SMALL, depth, plan.cell, stop).await;
        let cell = cell.map_err(failed())?;
        if stop.requested() {
            return Ok(Ceilings { stopped: true, ..found });
        }
        found.random_read.push(cell);
    }
    for (bytes, depth) in plan.mixed() {
        tell(&format!("write beside random read {} × {depth} each", size(bytes)));
        let kinds = [(Kind::SequentialWrite, depth), (Kind::RandomRead, depth)];
        let both =
            probe::run_all(&target, &kinds, bytes, plan.cell, stop).await.map_err(failed())?;
        if stop.requested() {
            return Ok(Ceilings { stopped: true, ..found });
        }
        if let [write, read] = both.as_slice() {
            found.mixed.push((write.clone(), read.clone()));
        }
    }
    tell(&format!("synced overwrite {}", size(SMALL)));
    let synced = probe::run(&target, Kind::SyncedOverwrite, SMALL, 1, plan.synced, stop).await;
    let synced = synced.map_err(failed())?;
    found.stopped = stop.requested();
    // What there is of it is whole: they came one after the other.
    found.synced_append = (synced.requests > 0).then_some(synced);
    Ok(found)
}

/// Sequential writes of the largest size on several disks at the same time.
#[derive(Debug, Clone)]
pub struct Together {
    pub dirs: Vec<PathBuf>,
    pub alone: Vec<Figures>,
    pub together: Vec<Figures>,
}

impl Together {
    fn sum(figures: &[Figures]) -> f64 {
        figures.iter().map(Figures::megabytes_per_second).sum()
    }

    pub fn alone_sum(&self) -> f64 {
        Self::sum(&self.alone)
    }

    pub fn together_sum(&self) -> f64 {
        Self::sum(&self.together)
    }

    /// 1.0: no disk is slower for the others.
    pub fn scaling(&self) -> f64 {
        self.together_sum() / self.alone_sum()
    }

    /// The slowest beside the fastest, each held against what it does alone; 1.0: all alike.
    pub fn skew(&self) -> f64 {
        let share = |(together, alone): (&Figures, &Figures)| {
            together.megabytes_per_second() / alone.megabytes_per_second()
        };
        let shares: Vec<f64> = self.together.iter().zip(&self.alone).map(share).collect();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        least / shares.iter().copied().fold(0.0, f64::max)
    }
}

/// Each disk alone and then all together. `None` if a signal came in between.
pub fn measure_together(dirs: &[PathBuf], plan: &Plan, stop: &Stop) -> Result<Option<Together>> {
    let mut shards = Vec::new();
    let mut started = Ok(());
    for dir in dirs {
        match Shard::start(dir, plan, stop) {
            Ok(shard) => shards.push(shard),
            Err(error) => started = Err(error),
        }
    }
    let measured = started.and_then(|()| run_shards(&shards));
    // What a shard has to say of its own end is the better reason.
    let ends: Result<Vec<()>> = shards.into_iter().map(Shard::end).collect();
    if stop.requested() {
        return Ok(None);
    }
    ends?;
    let (alone, together) = measured?;
    Ok(Some(Together { dirs: dirs.to_vec(), alone, together }))
}

fn run_shards(shards: &[Shard]) -> Result<(Vec<Figures>, Vec<Figures>)> {
    shards.iter().try_for_each(Shard::filled)?;
    let mut alone = Vec::new();
    for shard in shards {
        shard.go()?;
        alone.push(shard.figures()?);
    }
    shards.iter().try_for_each(Shard::go)?;
    let together = shards.iter().map(Shard::figures).collect::<Result<Vec<_>>>()?;
    Ok((alone, together))
}

/// A thread with its file that writes for one cell whenever it is told to.
struct Shard {
    orders: mpsc::Sender<()>,
    answers: mpsc::Receiver<Option<Figures>>,
    thread: JoinHandle<io::Result<Result<()>>>,
}

impl Shard {
    fn start(dir: &Path, plan: &Plan, stop: &Stop) -> Result<Shard> {
        let (orders, ordered) = mpsc::channel::<()>();
        let (answer, answers) = mpsc::channel();
        let (dir, plan, stop) = (dir.to_owned(), plan.clone(), stop.clone());
        let main = move || async move {
            let target = Rc::new(Target::make(&dir, &plan, &stop).await?);
            // A receiver that is gone has failed on another disk.
            let _ = answer.send(None);
            // Nothing else runs on this ring, so it may block between two cells.
            while ordered.recv().is_ok() {
                let (kind, size, depth) = (Kind::SequentialWrite, LARGEST_REQUEST, TOGETHER_DEPTH);
                let cell = probe::run(&target, kind, size, depth, plan.cell, &stop).await;
                let _ = answer.send(Some(cell.map_err(Error::io("write in", &dir))?));
            }
            Ok(())
        };
        let thread = reactor::uring::spawn_shard(spec(), main).map_err(Error::Ring)?;
        Ok(Shard { orders, answers, thread })
    }

    fn filled(&self) -> Result<()> {
        self.answers.recv().map(drop).map_err(|_| Error::Thread)
    }

    fn go(&self) -> Result<()> {
        self.orders.send(()).map_err(|_| Error::Thread)
    }

    fn figures(&self) -> Result<Figures> {
        self.answers.recv().ok().flatten().ok_or(Error::Thread)
    }

    fn end(self) -> Result<()> {
        drop(self.orders);
        self.thread.join().map_err(|_| Error::Thread)?.map_err(Error::Ring)?
    }
}
