//! Where a directory is: file system, disks, machine; and the hardware profile made of all that and of
//! what was measured.

use std::path::{Path, PathBuf};

use hardware::{
    Cell, Conditions, Device, Disk, FileSystem, Host as _, HostFacts, Mixed, Mount, Profile,
    Rooted, SyncedAppend,
};

use crate::ceiling::Ceilings;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::probe::Figures;

/// A directory and what is below it.
#[derive(Debug, Clone)]
pub struct Place {
    pub dir: PathBuf,
    pub mount: Mount,
    pub disks: Vec<Disk>,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

impl Place {
    /// The directory must be there and take direct I/O.
    pub fn of(dir: &Path) -> Result<Place> {
        let found = hardware::inspect_directory(dir).map_err(Error::io("look at", dir))?;
        if !found.exists() {
            return Err(Error::Missing(dir.to_owned()));
        }
        if let hardware::DirectIo::Refused = found.direct_io {
            let what = format!("{}: {} refuses direct I/O", dir.display(), found.file_system);
            return Err(Error::Usage(what));
        }
        let dir = hardware::place_of(dir).map_err(Error::io("look at", dir))?;
        let host = Rooted::here();
        let mount = Mount::of(&host, &dir).ok_or_else(|| {
            Error::Usage(format!("{}: the mount table does not tell its disk", dir.display()))
        })?;
        let disks = Disk::below(&host, &mount);
        let (total_bytes, free_bytes) = (found.total_bytes, found.free_bytes);
        Ok(Place { dir, mount, disks, total_bytes, free_bytes })
    }

    /// One line: disk, file system and what matters of both.
    pub fn words(&self) -> String {
        let disks: Vec<String> = self.disks.iter().map(disk_words).collect();
        let disks =
            if disks.is_empty() { "no disk of this machine".into() } else { disks.join(" + ") };
        let (kind, options) = (&self.mount.file_system, self.mount.options.join(","));
        format!("{}: {disks}; {kind} ({options})", self.dir.display())
    }

    /// Whether two directories end on the same disk.
    pub fn shares_disk_with(&self, other: &Place) -> bool {
        self.disks.iter().any(|disk| other.disks.iter().any(|one| one.name == disk.name))
    }
}

fn disk_words(disk: &Disk) -> String {
    let unknown = || "unknown".to_owned();
    let model = disk.model.as_ref().map_or(String::new(), |model| format!(" {model}"));
    let size = disk.size_bytes.map_or_else(unknown, hardware::format_size);
    let scheduler = disk.scheduler.clone().unwrap_or_else(unknown);
    let cache = disk.write_cache.clone().unwrap_or_else(unknown);
    let kind = disk.kind.name();
    format!("{} ({kind}{model}, {size}, scheduler {scheduler}, write cache {cache})", disk.name)
}

/// Everything known about the disk as a file for `hardware/profiles/`.
pub fn profile(
    place: &Place,
    found: &Ceilings,
    plan: &Plan,
    emulated: Option<String>,
) -> Result<Profile> {
    let Some(synced) = found.synced_append.as_ref().filter(|_| !found.stopped) else {
        return Err(Error::Stopped);
    };
    let cells = |figures: &[Figures]| figures.iter().map(cell).collect::<Vec<_>>();
    let moment = rig::report::conditions::now();
    Ok(Profile {
        schema: Profile::SCHEMA,
        date: moment.split('T').next().unwrap_or_default().to_owned(),
        corelane: env!("CARGO_PKG_VERSION").to_owned(),
        emulated,
        device: device(place),
        file_system: FileSystem {
            kind: place.mount.file_system.clone(),
            options: place.mount.options.clone(),
            total_bytes: place.total_bytes,
            free_bytes: place.free_bytes,
        },
        host: machine(),
        conditions: Conditions {
            file_bytes: found.file_bytes,
            seconds_per_cell: plan.cell.as_secs_f64(),
            prefilled: true,
            load_average: found.load_average,
        },
        synced_append: SyncedAppend {
            request_bytes: synced.request_bytes,
            per_second: tenth(synced.per_second()),
            p50_us: tenth(synced.micros(50.0)),
            p90_us: tenth(synced.micros(90.0)),
            p99_us: tenth(synced.micros(99.0)),
            p999_us: tenth(synced.micros(99.9)),
            p9999_us: tenth(synced.micros(99.99)),
            max_us: tenth(synced.max_micros()),
            count: synced.requests,
        },
        sequential_write: cells(&found.sequential_write),
        sequential_read: cells(&found.sequential_read),
        random_read: cells(&found.random_read),
        mixed: found.mixed.iter().map(|(w, r)| Mixed { write: cell(w), read: cell(r) }).collect(),
    })
}

fn device(place: &Place) -> Device {
    let unknown = || "unknown".to_owned();
    let first = place.disks.first();
    Device {
        model: first.and_then(|disk| disk.model.clone()).unwrap_or_else(unknown),
        kind: first.map_or("other", |disk| disk.kind.name()).to_owned(),
        size_bytes: place.disks.iter().filter_map(|disk| disk.size_bytes).sum(),
        rotational: first.and_then(|disk| disk.rotational),
        is_virtual: first.is_some_and(|disk| disk.kind.is_virtual()),
        scheduler: first.and_then(|disk| disk.scheduler.clone()).unwrap_or_else(unknown),
        write_cache: first.and_then(|disk| disk.write_cache.clone()).unwrap_or_else(unknown),
        disks: place.disks.len() as u32,
    }
}

fn machine() -> HostFacts {
    let host = Rooted::here();
    let unknown = || "unknown".to_owned();
    let cpu = host.read("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    HostFacts {
        kernel: host.read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| unknown()),
        cpu: cpu.unwrap_or_else(unknown),
        cpus: hardware::usable_cpus().map_or(0, |cpus| cpus.ids.len() as u32),
        memory_bytes: hardware::memory().map_or(0, |memory| memory.total),
    }
}

/// Of the last minute.
pub fn load_average() -> f64 {
    let text = Rooted::here().read("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

fn cell(figures: &Figures) -> Cell {
    Cell {
        request_bytes: figures.request_bytes,
        depth: figures.depth,
        mb_per_s: tenth(figures.megabytes_per_second()),
        iops: tenth(figures.per_second()),
        p50_us: tenth(figures.micros(50.0)),
        p99_us: tenth(figures.micros(99.0)),
        max_us: tenth(figures.max_micros()),
        cpu_percent: tenth(figures.cpu_percent()),
    }
}

/// Nobody measures a disk more exactly.
fn tenth(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}
